"""Forward and backward of a run whose trace has no marks of them, as one imported from a Horovod timeline.

Backward is what lies between a step's first and last gradient; forward is what lies between the last gradient
done of the step before and the first one ready: the optimizer and the loop's own time are in it. All is on the
clock of the one rank that wrote the timeline.
"""

from __future__ import annotations

import pandas as pd

from ..tracer.schema import Kind


def has_marks(events: pd.DataFrame) -> bool:
    """Does the trace show forward and backward passes?"""
    return bool(events["kind"].isin([Kind.FORWARD.value, Kind.BACKWARD.value]).any())


def with_marks(events: pd.DataFrame) -> pd.DataFrame:
    """`events` with inferred forward and backward rows, gradients of all ranks counted to the writing rank.

    Sizes that only later events of a gradient tell are filled in.
    """
    events = events[events["step"] >= 0].copy()
    done = events[events["kind"] == Kind.DONE.value]
    if done.empty:
        return events
    writer = int(done["rank"].min())
    events.loc[events["kind"] == Kind.READY.value, "rank"] = writer
    sizes = events.dropna(subset=["tensor", "bytes"]).groupby("tensor")["bytes"].max()
    lacking = events["bytes"].isna() & events["tensor"].notna()
    events.loc[lacking, "bytes"] = events.loc[lacking, "tensor"].map(sizes)
    ready = events[events["kind"] == Kind.READY.value].groupby("step")["t_end_ns"].agg(["min", "max"])
    last_done = done.groupby("step")["t_end_ns"].max()
    rows = []
    for step, first, last in zip(ready.index, ready["min"], ready["max"], strict=True):
        before = last_done.get(step - 1)
        start = first if before is None else min(before, first)
        for kind, begin, end in ((Kind.FORWARD, start, first), (Kind.BACKWARD, first, last)):
            rows.append(
                {"step": step, "rank": writer, "kind": kind.value, "t_start_ns": begin, "t_end_ns": end}
            )
    return pd.concat([events, pd.DataFrame(rows)], ignore_index=True)


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
