"""Weight updates beside communication: how long those still take, alone, that are to do when work on a bucket begins.

A bucket's weights are updated while the next bucket is reduced, on the same cores. What an update costs is seen after the
last bucket, when nothing else runs. MXNet updates neighbours in its parameter list in one operation, which waits for the gradients of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..tracer.meta import TensorInfo

_NS = 1e-9


def bytes_updated(
    reduced: pd.DataFrame, done: pd.DataFrame, tensors: Sequence[TensorInfo], together: int
) -> pd.Series:
    """For each of `reduced` (step, rank, bucket, bytes, t_start_ns) the bytes of weights whose last gradient comes with it.

    `done` (step, rank, bucket, tensor) says what is in a bucket; `together` neighbours of `tensors` are one operation.
    Where they are not all known, each bucket's weights are taken to wait for no other.
    """
    keys = ["step", "rank"]
    order = reduced.sort_values("t_start_ns").groupby(keys).cumcount().rename("order")
    operation = {tensor.name: tensor.index // together for tensor in tensors}
    size = {tensor.name: tensor.bytes for tensor in tensors}
    members = done[[*keys, "bucket", "tensor"]].merge(
        reduced[[*keys, "bucket"]].assign(order=order), on=[*keys, "bucket"]
    )
    members = members.assign(operation=members["tensor"].map(operation), size=members["tensor"].map(size))
    if members.empty or members["operation"].isna().any():
        return reduced["bytes"]
    last = members.groupby([*keys, "operation"])["order"].transform("max")
    sums = members.assign(order=last).groupby([*keys, "order"])["size"].sum()
    places = pd.MultiIndex.from_frame(reduced[keys].assign(order=order))
    return pd.Series(sums.reindex(places).fillna(0.0).to_numpy(), index=reduced.index)


def update_work_s(calls: pd.DataFrame, reduced: pd.DataFrame, anchors: pd.DataFrame) -> pd.Series:
    """For each of `calls` (step, rank, bucket) the updates of the bucket before, in s, as far as backward left them undone.

    `reduced` are the allreduces of the same steps (step, rank, bucket, updated, t_start_ns, t_end_ns), ``updated`` of `bytes_updated`; `anchors` has
    backward_end_ns, last_done_ns and update_end_ns for each step and rank.
    """
    marks = ["step", "rank", "backward_end_ns", "last_done_ns", "update_end_ns"]
    table = reduced[["step", "rank", "bucket", "updated", "t_start_ns", "t_end_ns"]].merge(
        anchors[marks], on=["step", "rank"]
    )
    table = table.sort_values(["step", "rank", "t_start_ns"])
    before = table.groupby(["step", "rank"])[["updated", "t_end_ns"]].shift(1)
    in_backward_s = ((table["backward_end_ns"] - before["t_end_ns"]) * _NS).clip(lower=0.0)
    work_s = (before["updated"] * _s_per_byte(table) - in_backward_s).clip(lower=0.0).fillna(0.0)
    known = table.assign(update_s=work_s).groupby(["step", "rank", "bucket"])["update_s"].max()
    keys = pd.MultiIndex.from_frame(calls[["step", "rank", "bucket"]])
    return pd.Series(known.reindex(keys).fillna(0.0).to_numpy(), index=calls.index)


def _s_per_byte(table: pd.DataFrame) -> float:
    """Seconds a byte's update takes: from the last gradient's arrival to the last update, for the last bucket's bytes."""
    last = table.groupby(["step", "rank"]).tail(1)
    rates = (last["update_end_ns"] - last["last_done_ns"]).clip(lower=0) * _NS / last["updated"]
    return float(np.nanmedian(rates)) if len(rates) else 0.0
