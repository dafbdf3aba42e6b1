"""What single events leave open, from the recorded step as a whole.

Stock MPI: data of both directions of a connection take turns when the ranks begin more than about a millisecond apart.
Within one step some buckets do and some do not (see `bucket_turns`), and a fit bucket by bucket takes the side of the
more numerous. One factor stands for all, so it must be the one with which the whole step comes out as recorded.

Lanes: without a probe, allreduces that the network limits do not show what the lanes cost the cores. Where cores are short
the step does.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..tracer.trace import Trace
from .bucket_turns import LEAST, MOST
from .calibration import Z90, Calibration
from .observations import Observations, lanes_of
from .recorded import recorded_scenario
from .step import simulate_step

TURNS = "stock_duplex"
LANE_COST = "lane_s_per_byte"
CAP = "flow_cap_bits_per_s"
_LARGE_BYTES = 16 << 20
"""Less may be gone in the burst that a shaper lets through."""
_REACHED = 0.9
_AGREES = 0.03
_HALVINGS = 8
_CHANGES = (-0.05, 0.05, -0.1, 0.1, -0.15, 0.15, -0.2, 0.2)


def matched_to_the_step(trace: Trace, seen: Observations, calibration: Calibration) -> Calibration:
    """`calibration` with the cost that gives the recorded step time, where its own misses by over 3 %.

    The cost is how often stock MPI takes turns, or what a byte costs a lane where no data tell. Its interval then holds
    what the fit to single events had found, too.
    """
    miss = _miss(trace, seen, calibration)
    if abs(miss) <= _AGREES:
        return calibration
    if lanes_of(trace) == 0:
        possible = _with_the_cap_that_was_reached(seen, calibration)
        return _changed(possible, TURNS, _turns(trace, seen, possible))
    if not calibration.entries[LANE_COST].identified:
        return _changed(calibration, LANE_COST, _lane_cost(trace, seen, calibration, miss))
    return calibration


def _with_the_cap_that_was_reached(seen: Observations, calibration: Calibration) -> Calibration:
    """A cap of a flow, where no data identify it, that is not below what exchanges of the run got.

    A fit takes exchanges without turns for quick ones on a slower flow; then no number of turns gives the step.
    """
    large = seen.buckets[(seen.buckets["bytes"] >= _LARGE_BYTES) & ~seen.buckets["lanes"]]
    cap, hosts = calibration.entries.get(CAP), calibration.hosts
    if cap is None or cap.identified or large.empty or hosts < 2:
        return calibration
    wire_bits = 8 * 2 * (hosts - 1) / hosts * large["bytes"] / calibration.parameters.wire_efficiency
    reached = float((wire_bits / large["seconds"]).quantile(_REACHED))
    return _changed(calibration, CAP, max(0.0, math.log(reached / cap.value)))


def _turns(trace: Trace, seen: Observations, calibration: Calibration) -> float:
    """By how much to move the logarithm of the turns: the step grows with them."""
    before = calibration.entries[TURNS].value
    low, high = math.log(LEAST / before), math.log(MOST / before)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _miss(trace, seen, calibration.moved(TURNS, middle)) > 0:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)


def _lane_cost(trace: Trace, seen: Observations, calibration: Calibration, miss: float) -> float:
    """By how much to move the logarithm of the lanes' cost: the nearest change that is about right, else the best.

    The step jumps with it, where a gradient catches another bucket, so it is not halved down to.
    """
    misses = {0.0: abs(miss)}
    for change in _CHANGES:
        misses[change] = abs(_miss(trace, seen, calibration.moved(LANE_COST, change)))
        if misses[change] <= _AGREES / 2:
            break
    return min(misses, key=lambda change: misses[change])


def _miss(trace: Trace, seen: Observations, calibration: Calibration) -> float:
    """log(simulated / recorded) of the step time."""
    return math.log(simulate_step(recorded_scenario(trace, calibration, seen)).step_s / seen.step_s)


def _changed(calibration: Calibration, name: str, change: float) -> Calibration:
    """`calibration` with one cost moved and its uncertainty grown by as much."""
    if change == 0.0:
        return calibration
    moved, sigma = calibration.moved(name, change), abs(change) / Z90
    number = moved.fitted_names.index(name)
    covariance = np.asarray(moved.covariance, dtype=float)
    covariance[number, number] += sigma**2
    half = Z90 * math.sqrt(covariance[number, number])
    entry = moved.entries[name]
    wider = dataclasses.replace(
        entry,
        low=entry.value * math.exp(-half),
        high=entry.value * math.exp(half),
        source="the recorded step as a whole: its single events do not tell",
    )
    return dataclasses.replace(moved, entries={**moved.entries, name: wider}, covariance=covariance.tolist())
