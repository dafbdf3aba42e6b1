"""How often stock MPI takes turns on its connections, as the recorded step shows it.

Data of both directions of a connection take turns when the ranks begin more than about a millisecond apart. Within one
step some buckets do and some do not: the first, which begins as soon as each rank's backward pass allows, takes twice
the time of one that all ranks find waiting in the queue. One factor stands for all, so it must be the one with which
the whole step comes out as recorded; a fit bucket by bucket takes the side of the more numerous.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..tracer.trace import Trace
from .calibration import Z90, Calibration
from .observations import Observations
from .recorded import recorded_scenario
from .step import simulate_step

NAME = "stock_duplex"
LEAST, MOST = 1.0, 2.2
_AGREES = 0.03
_HALVINGS = 8


def with_turns_of_the_step(trace: Trace, seen: Observations, calibration: Calibration) -> Calibration:
    """`calibration` with the share of turns that gives the recorded step time, where its own misses by over 3 %.

    The interval then holds what the fit to single buckets had found, too. A trace with lanes says nothing about stock.
    """
    if trace.meta.settings.get("aux") or abs(_miss(trace, seen, calibration)) <= _AGREES:
        return calibration
    before = calibration.entries[NAME].value
    low, high = math.log(LEAST / before), math.log(MOST / before)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _miss(trace, seen, calibration.moved(NAME, middle)) > 0:
            high = middle
        else:
            low = middle
    change = 0.5 * (low + high)
    return _widened(calibration.moved(NAME, change), abs(change) / Z90)


def _miss(trace: Trace, seen: Observations, calibration: Calibration) -> float:
    """log(simulated / recorded) of the step time."""
    return math.log(simulate_step(recorded_scenario(trace, calibration, seen)).step_s / seen.step_s)


def _widened(calibration: Calibration, sigma: float) -> Calibration:
    """The factor's own uncertainty grown by `sigma` (of its logarithm)."""
    number = calibration.fitted_names.index(NAME)
    covariance = np.asarray(calibration.covariance, dtype=float)
    covariance[number, number] += sigma**2
    half = Z90 * math.sqrt(covariance[number, number])
    entry = calibration.entries[NAME]
    wider = dataclasses.replace(
        entry,
        low=entry.value * math.exp(-half),
        high=entry.value * math.exp(half),
        source="the recorded step as a whole: some of its buckets take turns, some do not",
    )
    entries = {**calibration.entries, NAME: wider}
    return dataclasses.replace(calibration, entries=entries, covariance=covariance.tolist())
