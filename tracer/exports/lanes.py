"""Put intervals on as few lanes as possible so that a viewer can draw each lane as nested slices.

Trace viewers want the slices of one thread to *nest*: two of them are apart, or one holds the other. Intervals
that overlap in part (concurrent transfers, tensors that wait at the same time) therefore go to another lane.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Lanes:
    """First-fit assignment of the intervals of one track, given in order of start (longest first on a tie).

    With ``nests=False`` a lane never holds two intervals at once: the right picture for things that wait side
    by side, where nesting would look like calls. `depth_limit` is what viewers can draw in one lane.
    """

    nests: bool
    depth_limit: int = 100
    _open_ends: list[list[int]] = field(default_factory=list)

    def place(self, start_ns: int, end_ns: int) -> int:
        """Number of the lane for the interval [start_ns, end_ns): 0 is the first one."""
        limit = self.depth_limit if self.nests else 1
        for number, open_ends in enumerate(self._open_ends):
            while open_ends and open_ends[-1] <= start_ns:
                open_ends.pop()
            if not open_ends or (len(open_ends) < limit and open_ends[-1] >= end_ns):
                open_ends.append(end_ns)
                return number
        self._open_ends.append([end_ns])
        return len(self._open_ends) - 1
