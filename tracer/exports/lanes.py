"""Put intervals on as few lanes as possible so that a viewer can draw each lane as nested slices.

Trace viewers want the slices of one thread to *nest*: two of them are apart, or one holds the other. Intervals
that overlap in part (concurrent transfers, tensors that wait at the same time) therefore go to another lane.
Both kinds of lanes are given the intervals of one track in order of start, the longest first on a tie, and answer
with the number of the lowest lane (from 0) that takes each interval [start, end).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol


class Lanes(Protocol):
    """Gives each interval of one track a lane."""

    def place_all(self, starts_ns: Sequence[int], ends_ns: Sequence[int]) -> list[int]:
        """Numbers of the lanes for the next intervals [start, end)."""


class NestedLanes:
    """An interval may lie inside another one on its lane: calls of a thread. `depth_limit` is what viewers draw."""

    def __init__(self, depth_limit: int = 100) -> None:
        self._depth_limit = depth_limit
        self._open_ends: list[list[int]] = []

    def place_all(self, starts_ns: Sequence[int], ends_ns: Sequence[int]) -> list[int]:
        """Numbers of the lanes for the next intervals [start, end)."""
        lanes, depth_limit = self._open_ends, self._depth_limit
        numbers = []
        for start_ns, end_ns in zip(starts_ns, ends_ns, strict=True):
            for number, open_ends in enumerate(lanes):
                while open_ends and open_ends[-1] <= start_ns:
                    open_ends.pop()
                if not open_ends or (open_ends[-1] >= end_ns and len(open_ends) < depth_limit):
                    open_ends.append(end_ns)
                    numbers.append(number)
                    break
            else:
                numbers.append(len(lanes))
                lanes.append([end_ns])
        return numbers


class SingleLanes:
    """One interval at a time on each lane: things that wait side by side, where nesting would look like calls."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []  # (end, lane), the first to end on top
        self._free: list[int] = []
        self._count = 0

    def place_all(self, starts_ns: Sequence[int], ends_ns: Sequence[int]) -> list[int]:
        """Numbers of the lanes for the next intervals [start, end)."""
        busy, free = self._busy, self._free
        numbers = []
        for start_ns, end_ns in zip(starts_ns, ends_ns, strict=True):
            while busy and busy[0][0] <= start_ns:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if free:
                number = heapq.heappop(free)
            else:
                number = self._count
                self._count += 1
            heapq.heappush(busy, (end_ns, number))
            numbers.append(number)
        return numbers
