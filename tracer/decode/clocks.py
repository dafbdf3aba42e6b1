"""One clock for all hosts, from collectives that nobody can leave before everybody has entered.

For the same collective on ranks a (reference host) and b: ``end_a >= start_b`` and ``end_b >= start_a`` in
true time. With ``reference = b + offset + drift x (b - middle)`` every collective bounds the offset from both
sides. The tightest bounds of a run leave a narrow strip; its middle line is the estimate, its half-width the
uncertainty: a bound, not a statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from .. import raw
from .horovod import Calls
from .rows import Integers

SYNCHRONISING = (raw.ALLREDUCE, raw.ALLGATHER, raw.ALLGATHERV, raw.ALLTOALL, raw.ALLTOALLV, raw.BARRIER)
MAX_DRIFT = 5e-4  # crystal oscillators stay within 100 ppm; more is no clock
BINS = 256
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clock:
    """How to turn a host's stamps into reference time: ``t + offset + drift x (t - middle)``, in ns."""

    offset_ns: int
    drift: float = 0.0
    middle_ns: int = 0
    uncertainty_ns: int | None = None

    def to_reference(self, stamps_ns: Integers) -> Integers:
        """`stamps_ns` of the host on the reference clock."""
        drifted: Integers = np.rint(self.drift * (stamps_ns - self.middle_ns)).astype(np.int64)
        return stamps_ns + self.offset_ns + drifted


@dataclass(frozen=True)
class Bounds:
    """Per collective: host time (ns) and the least and greatest offset it allows (ns)."""

    at_ns: Integers
    low_ns: Integers
    high_ns: Integers


def bounds_between(reference: list[Calls], other: list[Calls]) -> Bounds:
    """What the collectives of the world communicator say about the clock of `other`'s host."""
    ours, theirs = [_synchronising(calls) for calls in reference], [_synchronising(calls) for calls in other]
    common = _common_numbers([*ours, *theirs])
    if not len(common):
        empty = np.zeros(0, dtype=np.int64)
        return Bounds(empty, empty, empty)
    a_start = np.max([_at(part, common)[0] for part in ours], axis=0)
    a_end = np.min([_at(part, common)[1] for part in ours], axis=0)
    b_start = np.max([_at(part, common)[0] for part in theirs], axis=0)
    b_end = np.min([_at(part, common)[1] for part in theirs], axis=0)
    return Bounds((b_start + b_end) // 2, a_start - b_end, a_end - b_start)


@dataclass(frozen=True)
class _Part:
    numbers: Integers
    start_ns: Integers
    end_ns: Integers


def _synchronising(calls: Calls) -> _Part:
    chosen = np.isin(calls.call, SYNCHRONISING)
    if chosen.any():  # the communicator with most of them: Horovod's own, congruent to the world
        values, counts = np.unique(calls.communicator[chosen], return_counts=True)
        chosen &= calls.communicator == values[np.argmax(counts)]
    places = np.flatnonzero(chosen)
    order = places[np.argsort(calls.number[places], kind="stable")]
    return _Part(calls.number[order], calls.start_ns[order], calls.end_ns[order])


def _common_numbers(parts: list[_Part]) -> Integers:
    common = parts[0].numbers
    for part in parts[1:]:
        common = np.intersect1d(common, part.numbers, assume_unique=True)
    return common


def _at(part: _Part, numbers: Integers) -> tuple[Integers, Integers]:
    places = np.searchsorted(part.numbers, numbers)
    return part.start_ns[places], part.end_ns[places]


def fit_clock(bounds: Bounds) -> Clock | None:
    """The clock within `bounds`, or None when there are none or they contradict each other."""
    if not len(bounds.at_ns):
        return None
    middle = int((bounds.at_ns[0] + bounds.at_ns[-1]) // 2)
    base = int(bounds.low_ns[0])
    x, low, high = _tightest(
        (bounds.at_ns - middle).astype(float), bounds.low_ns - base, bounds.high_ns - base
    )
    span = float(x.max() - x.min())
    if span < 2e9:  # too short to tell a drift from noise
        floor, ceiling = float(low.max()), float(high.min())
        if floor > ceiling:
            return None
        return Clock(base + round((floor + ceiling) / 2), 0.0, middle, max(1, round((ceiling - floor) / 2)))
    widest = _solve([0.0, 0.0, -1.0], x, low, high, margin=True)
    if widest is None or widest[2] < 0:
        return None
    least = _solve([1.0, 0.0, 0.0], x, low, high, margin=False)
    most = _solve([-1.0, 0.0, 0.0], x, low, high, margin=False)
    half = (most[0] - least[0]) / 2 if least is not None and most is not None else widest[2]
    return Clock(base + round(widest[0]), widest[1] / span, middle, max(1, round(half)))


def _tightest(x: Floats, low: Integers, high: Integers) -> tuple[Floats, Floats, Floats]:
    """The one strictest lower and upper bound in each of `BINS` stretches of time."""
    if len(x) <= 2 * BINS:
        return x, low.astype(float), high.astype(float)
    stretch = np.minimum(((x - x.min()) / (np.ptp(x) or 1.0) * BINS).astype(int), BINS - 1)
    order = np.lexsort((high, stretch))
    firsts = order[np.unique(stretch[order], return_index=True)[1]]
    order = np.lexsort((-low, stretch))
    lasts = order[np.unique(stretch[order], return_index=True)[1]]
    chosen = np.unique(np.concatenate([firsts, lasts]))
    return x[chosen], low[chosen].astype(float), high[chosen].astype(float)


def _solve(goal: list[float], x: Floats, low: Floats, high: Floats, *, margin: bool) -> Floats | None:
    """Line within the bounds: offset, change over the whole span, and the margin to the nearest bound (ns)."""
    span = float(x.max() - x.min())
    scaled = x / span
    ones, keep = np.ones_like(x), np.full_like(x, 1.0 if margin else 0.0)
    matrix: Floats = np.vstack(
        [np.column_stack([ones, scaled, keep]), np.column_stack([-ones, -scaled, keep])]
    )
    limit = MAX_DRIFT * span
    limits: Floats = np.concatenate([high, -low])
    room = np.inf if margin else 0.0
    ranges: Any = [(-np.inf, np.inf), (-limit, limit), (-room, room)]  # the stubs know one pair only
    answer = linprog(
        goal,
        A_ub=matrix,
        b_ub=limits,
        bounds=ranges,
        method="highs",
    )
    return np.asarray(answer.x) if answer.status == 0 else None
