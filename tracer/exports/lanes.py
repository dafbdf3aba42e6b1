"""Put intervals on as few lanes as possible so that a viewer can draw each lane as nested slices.

Trace viewers want the slices of one thread to *nest*: two of them are apart, or one holds the other. Intervals
that overlap in part (concurrent transfers, tensors that wait at the same time) therefore go to another lane.
Both kinds of lanes are given the intervals of one track in order of start, the longest first on a tie, and answer
with the number of the lowest lane (from 0) that takes the interval [start, end).
"""

from __future__ import annotations

import heapq
from typing import Protocol


class Lanes(Protocol):
    """Gives each interval of one track a lane."""

    def place(self, start_ns: int, end_ns: int) -> int:
        """Number of the lane for the interval [start_ns, end_ns)."""


class NestedLanes:
    """An interval may lie inside another one on its lane: calls of a thread. `depth_limit` is what viewers draw."""

    def __init__(self, depth_limit: int = 100) -> None:
        self._depth_limit = depth_limit
        self._open_ends: list[list[int]] = []

    def place(self, start_ns: int, end_ns: int) -> int:
        """Number of the lane for the interval [start_ns, end_ns)."""
        for number, open_ends in enumerate(self._open_ends):
            while open_ends and open_ends[-1] <= start_ns:
                open_ends.pop()
            if not open_ends or (open_ends[-1] >= end_ns and len(open_ends) < self._depth_limit):
                open_ends.append(end_ns)
                return number
        self._open_ends.append([end_ns])
        return len(self._open_ends) - 1


class SingleLanes:
    """One interval at a time on each lane: things that wait side by side, where nesting would look like calls."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []  # (end, lane), the first to end on top
        self._free: list[int] = []
        self._count = 0

    def place(self, start_ns: int, end_ns: int) -> int:
        """Number of the lane for the interval [start_ns, end_ns)."""
        while self._busy and self._busy[0][0] <= start_ns:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number = self._count
            self._count += 1
        heapq.heappush(self._busy, (end_ns, number))
        return number
