"""One clock for all hosts, from what cannot happen in another order.

* A byte is not received before its send began: ``received >= sent`` in true time, for every matched message.
* No rank leaves a collective before all have entered it: ``end_a >= start_b`` and ``end_b >= start_a``.

With ``reference = t + offset + drift x (t - middle)`` each such fact bounds the offset from one side. The tightest
bounds of a run leave a narrow strip; its middle line is the estimate, its half-width the uncertainty: a bound, not a
statistic. A host that shares no fact with the reference host is aligned through others that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from .. import raw
from .horovod import Calls
from .rows import Integers
from .tcp import Messages

SYNCHRONISING = (raw.ALLREDUCE, raw.ALLGATHER, raw.ALLGATHERV, raw.ALLTOALL, raw.ALLTOALLV, raw.BARRIER)
MAX_DRIFT = 5e-4  # crystal oscillators stay within 100 ppm; more is no clock
BINS = 256
SHORT_NS = 2e9  # a shorter run cannot tell drift from noise
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

    def then(self, further: Clock) -> Clock:
        """This clock, whose reference is a host that `further` takes to the final reference."""
        middle = int(self.to_reference(np.array([self.middle_ns]))[0])
        final = int(further.to_reference(np.array([middle]))[0])
        drift = (1 + self.drift) * (1 + further.drift) - 1
        return Clock(
            final - self.middle_ns,
            drift,
            self.middle_ns,
            (self.uncertainty_ns or 0) + (further.uncertainty_ns or 0),
        )


@dataclass(frozen=True)
class Bounds:
    """Least offsets and greatest offsets (ns), each with the host's time (ns) at which it holds."""

    low_at_ns: Integers
    low_ns: Integers
    high_at_ns: Integers
    high_ns: Integers

    def joined(self, other: Bounds) -> Bounds:
        """All bounds of both."""
        return Bounds(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in _BOUNDS))


_BOUNDS = ("low_at_ns", "low_ns", "high_at_ns", "high_ns")
_NOTHING: Integers = np.zeros(0, dtype=np.int64)
NO_BOUNDS = Bounds(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


def bounds_of_messages(to_host: Messages, from_host: Messages) -> Bounds:
    """What messages between the reference host and the other say about the other's clock."""
    return Bounds(
        low_at_ns=to_host.received_ns,
        low_ns=to_host.sent_ns - to_host.received_ns,
        high_at_ns=from_host.sent_ns,
        high_ns=from_host.received_ns - from_host.sent_ns,
    )


def bounds_of_collectives(reference: list[Calls], other: list[Calls]) -> Bounds:
    """What the collectives of the world communicator say about the clock of `other`'s host."""
    ours, theirs = [_synchronising(calls) for calls in reference], [_synchronising(calls) for calls in other]
    common = _common_numbers([*ours, *theirs])
    if not len(common):
        return NO_BOUNDS
    a_start, a_end = _inner(ours, common)
    b_start, b_end = _inner(theirs, common)
    return Bounds(b_end, a_start - b_end, b_start, a_end - b_start)


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


def _inner(parts: list[_Part], numbers: Integers) -> tuple[Integers, Integers]:
    """Per collective: when the last of these ranks entered it, and when the first left it."""
    places = [np.searchsorted(part.numbers, numbers) for part in parts]
    entered = [part.start_ns[place] for part, place in zip(parts, places, strict=True)]
    left = [part.end_ns[place] for part, place in zip(parts, places, strict=True)]
    return np.max(entered, axis=0), np.min(left, axis=0)


def fit_clock(bounds: Bounds) -> Clock | None:
    """The clock within `bounds`, or None when one side has none or they contradict each other."""
    if not len(bounds.low_ns) or not len(bounds.high_ns):
        return None
    at = np.concatenate([bounds.low_at_ns, bounds.high_at_ns])
    middle = int((int(at.min()) + int(at.max())) // 2)
    base = int(bounds.low_ns[0])
    span = float(at.max() - at.min())
    lows, highs = -(bounds.low_ns - base), bounds.high_ns - base
    if span < SHORT_NS:
        floor, ceiling = -float(lows.min()), float(highs.min())
        if floor <= ceiling:  # else the clocks drift so much that even a short run shows it
            return Clock(
                base + round((floor + ceiling) / 2), 0.0, middle, max(1, round((ceiling - floor) / 2))
            )
    slope, widest = 0.0, np.zeros(3)
    for _ in range(2):  # which bound of a stretch is the strictest depends on the drift within it
        low = _strictest(bounds.low_at_ns - middle, lows, -slope)
        high = _strictest(bounds.high_at_ns - middle, highs, slope)
        found = _line(low, high, span, [0.0, 0.0, -1.0], margin=True)
        if found is None or found[2] < 0:
            return None
        widest = found
        slope = float(widest[1]) / span
    least = _line(low, high, span, [1.0, 0.0, 0.0], margin=False)
    most = _line(low, high, span, [-1.0, 0.0, 0.0], margin=False)
    half = (most[0] - least[0]) / 2 if least is not None and most is not None else widest[2]
    return Clock(base + round(widest[0]), float(widest[1]) / span, middle, max(1, round(float(half))))


def _strictest(at: Integers, limit: Integers, slope: float) -> tuple[Floats, Floats]:
    """Of upper limits at times, in each of `BINS` stretches of time the one that is lowest above a line of `slope`."""
    if len(at) <= BINS:
        return at.astype(float), limit.astype(float)
    stretch = np.minimum(((at - at.min()) / (np.ptp(at) or 1) * BINS).astype(int), BINS - 1)
    order = np.lexsort((limit - slope * at, stretch))
    chosen = order[np.unique(stretch[order], return_index=True)[1]]
    return at[chosen].astype(float), limit[chosen].astype(float)


def _line(
    low: tuple[Floats, Floats], high: tuple[Floats, Floats], span: float, goal: list[float], *, margin: bool
) -> Floats | None:
    """Line within the bounds: offset, change over the whole span, and the margin to the nearest bound (ns)."""
    keep = 1.0 if margin else 0.0
    matrix: Floats = np.vstack(
        [
            np.column_stack([np.ones_like(high[0]), high[0] / span, np.full_like(high[0], keep)]),
            np.column_stack([-np.ones_like(low[0]), -low[0] / span, np.full_like(low[0], keep)]),
        ]
    )
    limits: Floats = np.concatenate([high[1], low[1]])
    most = MAX_DRIFT * span
    room = np.inf if margin else 0.0
    ranges: Any = [(-np.inf, np.inf), (-most, most), (-room, room)]  # the stubs know one pair only
    answer = linprog(goal, A_ub=matrix, b_ub=limits, bounds=ranges, method="highs")
    return np.asarray(answer.x) if answer.status == 0 else None


def align(hosts: list[str], bounds: Callable[[str, str], Bounds]) -> dict[str, Clock | None]:
    """Clocks of all `hosts` against the first; ``bounds(a, b)`` tells what is known of b's clock against a's.

    A host without a fact in common with the first is reached through hosts that are aligned already.
    """
    clocks: dict[str, Clock | None] = dict.fromkeys(hosts)
    clocks[hosts[0]] = Clock(0, uncertainty_ns=0)
    reached, open_hosts = [hosts[0]], list(hosts[1:])
    for via in reached:
        for host in list(open_hosts):
            clock = fit_clock(bounds(via, host))
            if clock is not None:
                known = clocks[via]
                assert known is not None
                clocks[host] = clock.then(known)
                reached.append(host)
                open_hosts.remove(host)
    return clocks
