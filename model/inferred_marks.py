"""Forward and backward of a run whose trace has no marks of them, as one imported from a Horovod timeline.

Backward is what lies between a step's first and last gradient; forward is what lies between the last gradient
done of the step before and the first one ready: the optimizer and the loop's own time are in it. All is on the
clock of the one rank that wrote the timeline.

Such a file shows a gradient when Horovod's thread sees it. While that thread reduces others it sees nothing: the gradient
was ready at some time meanwhile. It is taken to the middle of what is likely, and half of that range is *unknown*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..tracer.schema import Kind

_BUSY = (Kind.ALLREDUCE, Kind.FUSE_IN, Kind.FUSE_OUT)
_MOSTLY = 0.5
_BATCH_NS = 1_000_000


def has_marks(events: pd.DataFrame) -> bool:
    """Does the trace show forward and backward passes?"""
    return bool(events["kind"].isin([Kind.FORWARD.value, Kind.BACKWARD.value]).any())


@dataclass(frozen=True)
class Inferred:
    """Events with marks, and how much longer or shorter (s, 90 %) backward may be than these say."""

    events: pd.DataFrame
    unknown_s: float


def with_marks(events: pd.DataFrame) -> Inferred:
    """`events` with inferred forward and backward rows, gradients of all ranks counted to the writing rank.

    Sizes that only later events of a gradient tell are filled in.
    """
    events = events[events["step"] >= 0].copy()
    done = events[events["kind"] == Kind.DONE.value]
    if done.empty:
        return Inferred(events, 0.0)
    writer = int(done["rank"].min())
    events.loc[events["kind"] == Kind.READY.value, "rank"] = writer
    sizes = events.dropna(subset=["tensor", "bytes"]).groupby("tensor")["bytes"].max()
    lacking = events["bytes"].isna() & events["tensor"].notna()
    events.loc[lacking, "bytes"] = events.loc[lacking, "tensor"].map(sizes)
    last_done = done.groupby("step")["t_end_ns"].max()
    events, unknown_ns = _unhidden(events, last_done)
    ready = events[events["kind"] == Kind.READY.value].groupby("step")["t_end_ns"].agg(["min", "max"])
    rows = []
    for step, first, last in zip(ready.index, ready["min"], ready["max"], strict=True):
        before = last_done.get(step - 1)
        start = first if before is None else min(before, first)
        for kind, begin, end in ((Kind.FORWARD, start, first), (Kind.BACKWARD, first, last)):
            rows.append(
                {"step": step, "rank": writer, "kind": kind.value, "t_start_ns": begin, "t_end_ns": end}
            )
    marked = pd.concat([events, pd.DataFrame(rows)], ignore_index=True)
    return Inferred(marked, float(np.median(unknown_ns)) * 1e-9 if unknown_ns else 0.0)


def _unhidden(events: pd.DataFrame, last_done: pd.Series) -> tuple[pd.DataFrame, list[int]]:
    """Gradients seen late moved to where they may have been ready, and the uncertainty of each step in ns.

    A gradient seen after a time that Horovod mostly spent on reducing others was ready between the one seen before it
    and two forward passes later: backward takes about twice as long as forward.
    """
    events = events.copy()
    unknown: list[int] = []
    ends = dict(zip(last_done.index.tolist(), last_done.tolist(), strict=True))
    for step in sorted(set(events["step"].tolist())):
        part = events[events["step"] == step]
        before = ends.get(step - 1)
        stamps = part.loc[part["kind"] == Kind.READY.value, "t_end_ns"]
        if before is None or stamps.empty:
            continue
        work = part[part["kind"].isin([kind.value for kind in _BUSY])]
        forward = max(0, int(stamps.min()) - int(before))
        moved, seen, left = int(stamps.min()), int(stamps.min()), 0
        for stamp in sorted(stamps.unique().tolist()):
            overlap = work["t_end_ns"].clip(upper=stamp) - work["t_start_ns"].clip(lower=seen)
            hidden = overlap.clip(lower=0).sum() > _MOSTLY * (stamp - seen) and stamp - seen > _BATCH_NS
            width = min(stamp - seen, 2 * forward) if hidden else 0
            moved = moved + width // 2 if hidden else moved + (stamp - seen)
            seen, left = stamp, left + width // 2
            events.loc[stamps.index[stamps == stamp], "t_end_ns"] = moved
        unknown.append(left)
    late = (events["kind"] == Kind.READY.value) & (events["t_start_ns"] > events["t_end_ns"])
    events.loc[late, "t_start_ns"] = events.loc[late, "t_end_ns"]
    return events, unknown


def whole_steps(events: pd.DataFrame) -> pd.DataFrame:
    """Step boundaries from forward rows: rank, step, t_start_ns, t_end_ns, as `Trace.step_times` gives them."""
    starts = (
        events[events["kind"] == Kind.FORWARD.value]
        .groupby(["rank", "step"])["t_start_ns"]
        .min()
        .reset_index()
    )
    starts["t_end_ns"] = starts.groupby("rank")["t_start_ns"].shift(-1)
    following = starts.groupby("rank")["step"].shift(-1)
    return starts[following == starts["step"] + 1].astype({"t_end_ns": "int64"})
