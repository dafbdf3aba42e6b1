"""The lanes under a running rank: change how many are used between two allreduces, and see what CPU they take.

So variants alternate within one job: a drift of the machine hits all of them alike.
"""

from __future__ import annotations

import ctypes
from pathlib import Path


class LaneSwitch:
    """The lanes under this rank, through the C interface of the preloaded library."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        try:
            self._use, self._total = library.fasthvd_use_lanes, library.fasthvd_lanes_total
        except AttributeError:
            raise SystemExit(
                "vsketchdlc: libfasthvd.so is not preloaded in this rank; run 'vsketchdlc doctor'"
            ) from None

    @staticmethod
    def is_preloaded() -> bool:
        """Whether there are lanes under this rank that could be switched."""
        return hasattr(ctypes.CDLL(None), "fasthvd_use_lanes")

    def total(self) -> int:
        """Lanes a host that were started."""
        return int(self._total())

    def use(self, count: int) -> None:
        """From now on use the first `count` lanes, 0 is MPI; all ranks call this between the same two allreduces."""
        if self._use(count) != 0:
            raise SystemExit(f"vsketchdlc: {count} lanes are not there ({self.total()} were started)")


def lanes_cpu_s() -> float:
    """CPU seconds of this host's lane processes so far (the kernel counts them in ns)."""
    total_ns = 0
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().startswith("fasthvd-lane"):
                total_ns += sum(
                    int(task.read_text().split()[0]) for task in comm.parent.glob("task/*/schedstat")
                )
        except OSError:
            continue  # that process has just ended
    return total_ns * 1e-9
