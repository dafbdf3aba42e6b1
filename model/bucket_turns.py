"""Which of a step's exchanges of stock MPI take turns on their connections, relative to the average of the step.

An exchange either keeps both directions of a connection busy or takes twice as long (see `whole_step`), and each bucket has
its habit: at one site the first of a step takes turns and the second does not, at another it is the other way round.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from .collectives import alone_s, stock_legs
from .observations import Observations
from .parameters import Parameters
from .sites import Sites

LEAST_BYTES = 1 << 20
"""Smaller exchanges are latency, and are not counted."""
LEAST, MOST = 1.0, 2.2
_LEAST_SEEN = 3


def turns_by_bucket(seen: Observations, sites: Sites, costs: Parameters) -> tuple[float, ...]:
    """Factor on `Parameters.stock_duplex` of the n-th large allreduce of a step; by bytes their mean is 1.

    Empty where no exchange of the recorded steps is large.
    """
    stock = seen.buckets[~seen.buckets["lanes"]]
    large = stock[stock["bytes"] >= LEAST_BYTES].sort_values(["step", "start_s"])
    place = large.groupby("step").cumcount()
    found, nbytes = [], []
    for _, calls in large.groupby(place):
        if len(calls) < _LEAST_SEEN:
            break
        typical = calls[["bytes", "seconds", "busy_s", "update_s"]].median()
        found.append(_factor(sites, costs, *typical))
        nbytes.append(float(typical["bytes"]))
    if not found:
        return ()
    mean = float(np.average(found, weights=nbytes))
    return tuple(factor / mean for factor in found)


def _factor(
    sites: Sites, costs: Parameters, nbytes: float, seconds: float, busy_s: float, update_s: float
) -> float:
    """The ``stock_duplex`` with which an exchange takes `seconds`, the nearest where none does."""

    def too_long_by(factor: float) -> float:
        changed = costs.replaced(stock_duplex=factor)
        legs = stock_legs(sites, changed, int(nbytes), int(nbytes) // 4)
        return alone_s(legs, sites, changed, busy_s, update_s) - seconds

    if too_long_by(LEAST) >= 0:
        return LEAST
    if too_long_by(MOST) <= 0:
        return MOST
    return float(optimize.brentq(too_long_by, LEAST, MOST, rtol=1e-4))
