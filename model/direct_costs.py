"""Small costs that a trace shows directly: each is the middle of its own events."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .calibration import Z90, Fitted
from .middle import middle_mean
from .observations import Observations
from .openmpi import control_rounds
from .parameters import INFO
from .place import Place

Numbers = npt.NDArray[np.float64]


def direct_costs(seen: Observations, place: Place, cycle_s: float) -> dict[str, Fitted]:
    """Entries of a calibration, by name, for a run at `place` whose cycle is asked to last `cycle_s` seconds; those with fewer
    than five events are not there.
    """
    found: dict[str, Fitted] = {}

    def put(name: str, values: Numbers, source: str) -> None:
        values = values[np.isfinite(values) & (values > 0)]
        if len(values) < 5:
            return
        centre = middle_mean(values)
        scatter = 1.4826 * float(np.median(np.abs(np.log(values / centre))))
        half = Z90 * max(1.2533 * scatter / math.sqrt(len(values)), 4e-4)
        low, high = centre * math.exp(-half), centre * math.exp(half)
        found[name] = Fitted(centre, INFO[name].unit, low, high, True, f"{len(values)} {source}")

    put("enqueue_s", seen.enqueue_s, "enqueue events")
    put("tensor_s", seen.callback_s, "steps' callbacks")
    rounds = control_rounds(place.ranks)
    if rounds:
        put("control_round_s", seen.control_s / rounds - place.latency_s, "control calls")
        # Beside a busy core a cycle lasts as long as its thread waits for its turn and leaves no time to sleep; else it sleeps its time.
        period_s = seen.control_period_s
        excess = period_s - cycle_s
        put("cycle_slack_s", excess[excess < 0.5e-3], "cycles during forward passes")
        turns = max(1.0, place.sites.turns_before(1.0))
        put("busy_wait_s", period_s[excess >= 0.5e-3] / turns, "cycles during forward passes")
    return found
