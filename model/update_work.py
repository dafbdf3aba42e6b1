"""Weight updates beside communication: how long those still take, alone, that are to do when work on a bucket begins.

A bucket's weights are updated while the next bucket is reduced, on the same cores. What an update costs is seen after the
last bucket, when nothing else runs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

_NS = 1e-9


def update_work_s(calls: pd.DataFrame, reduced: pd.DataFrame, anchors: pd.DataFrame) -> pd.Series:
    """For each of `calls` (step, rank, bucket) the updates of the bucket before, in s, as far as backward left them undone.

    `reduced` are the allreduces of the same steps (step, rank, bucket, bytes, t_start_ns, t_end_ns); `anchors` has
    backward_end_ns, last_done_ns and update_end_ns for each step and rank.
    """
    marks = ["step", "rank", "backward_end_ns", "last_done_ns", "update_end_ns"]
    table = reduced[["step", "rank", "bucket", "bytes", "t_start_ns", "t_end_ns"]].merge(
        anchors[marks], on=["step", "rank"]
    )
    table = table.sort_values(["step", "rank", "t_start_ns"])
    before = table.groupby(["step", "rank"])[["bytes", "t_end_ns"]].shift(1)
    in_backward_s = ((table["backward_end_ns"] - before["t_end_ns"]) * _NS).clip(lower=0.0)
    work_s = (before["bytes"] * _s_per_byte(table) - in_backward_s).clip(lower=0.0).fillna(0.0)
    known = table.assign(update_s=work_s).groupby(["step", "rank", "bucket"])["update_s"].max()
    keys = pd.MultiIndex.from_frame(calls[["step", "rank", "bucket"]])
    return pd.Series(known.reindex(keys).fillna(0.0).to_numpy(), index=calls.index)


def _s_per_byte(table: pd.DataFrame) -> float:
    """Seconds a byte's update takes: from the last gradient's arrival to the last update, for the last bucket's bytes."""
    last = table.groupby(["step", "rank"]).tail(1)
    rates = (last["update_end_ns"] - last["last_done_ns"]).clip(lower=0) * _NS / last["bytes"]
    return float(np.nanmedian(rates)) if len(rates) else 0.0
