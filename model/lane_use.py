"""Which recorded allreduces went through the lanes, and which stayed on stock MPI.

A run with lanes measures at its start from which size on they are worth it; a trace shows what came of it: the lanes that
ran during an allreduce on its host.
"""

from __future__ import annotations

import pandas as pd

from ..tracer.schema import Kind
from .lanes import DEFAULT_LANE_THRESHOLD_BYTES

KINDS = (Kind.LANE_LOCAL_SUM, Kind.LANE_REDUCE_SCATTER, Kind.LANE_ALLGATHER)


def took_lanes(calls: pd.DataFrame, events: pd.DataFrame, aux: int) -> pd.Series:
    """For each of `calls` (host, bytes, t_start_ns, t_end_ns): did lanes of its host run in it?

    By size alone where the trace has no lane in it at all: it was recorded without their tracks.
    """
    lanes = events[events["kind"].isin([kind.value for kind in KINDS])]
    if aux == 0 or lanes.empty:
        return (calls["bytes"] >= DEFAULT_LANE_THRESHOLD_BYTES) & (aux > 0)
    found = pd.Series(False, index=calls.index)
    for host, mine in calls.groupby("host"):
        ends = lanes.loc[lanes["host"] == host, "t_end_ns"].sort_values().to_numpy()
        first_after = ends.searchsorted(mine["t_start_ns"].to_numpy(), side="right")
        last_before = ends.searchsorted(mine["t_end_ns"].to_numpy(), side="right")
        found[mine.index] = last_before > first_after
    return found


def threshold_bytes(buckets: pd.DataFrame, aux: int) -> int:
    """The size from which on `aux` lanes were used, of `buckets` (bytes, lanes), as nearly as one size tells.

    The usual one unless another fits better: some allreduces may have been redone over MPI after a failure.
    """
    sizes = [int(size) for size in buckets["bytes"]]
    if aux == 0 or not sizes:
        return DEFAULT_LANE_THRESHOLD_BYTES
    candidates = [DEFAULT_LANE_THRESHOLD_BYTES, *sorted(set(sizes)), max(sizes) + 1]
    return min(candidates, key=lambda size: int(((buckets["bytes"] >= size) != buckets["lanes"]).sum()))
