"""What a trace says about its run, as the numbers that a workload and a calibration are made of.

Only whole steps count, and not the first: it negotiates every gradient and allocates every buffer
(reference 5). A collective lasts from the arrival of its last rank to the end of its last rank; without a
common clock it is the shortest of the ranks' durations, that of the last to arrive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..errors import UserError
from ..tracer.schema import Kind
from ..tracer.trace import Trace
from .control_calls import control_calls_s
from .inferred_marks import has_marks, whole_steps, with_marks
from .lane_use import KINDS as LANE_KINDS
from .lane_use import took_lanes
from .update_work import bytes_updated, update_work_s
from .workload import PushTimes, Workload

Numbers = npt.NDArray[np.float64]
_NS = 1e-9
_BULK_GAP_S = 300e-6
_ALIGNED_NS = 1_000_000
_OF_BUCKETS = (Kind.ALLREDUCE, Kind.FUSE_IN, Kind.FUSE_OUT)


@dataclass(frozen=True)
class Observations:
    """Tables of one trace, times in s. ``inferred``: forward and backward were not marked, see `inferred_marks`,
    and backward may be ``unknown_s`` longer or shorter.

    ``steps``: step, step_s, forward_s, backward_s, rest_s (backward end to last update), gap_s (last update to
    next forward), tail_s (last gradient done to last update); the slowest rank of each step.
    ``ready``: tensor, ready_s (median over steps of the last rank's offset from backward start), sigma_s.
    ``buckets``: step, bucket, bytes, tensors, seconds, busy_s (how much of it ran beside the backward pass), update_s (s, of
    updates then still to do, as long as they take where nothing else runs), start_s (from the step's start), lanes (it went through them). ``fuse``: the same for the copies into and out of the fusion buffer, by ``kind``, mean over ranks.
    ``control_s``, ``enqueue_s``, ``callback_s``: durations of the small events of Horovod's threads;
    ``runs_ahead``: the script pushes the next step's work before this one's updates are done.
    ``own_variation``: relative sigma of a rank's compute around that of all ranks in the same step.
    ``enqueue_s`` has the mean of each rank and step, since only the first of many costs much.
    ``control_period_s``: mean distance of its cycles during each forward pass, when nothing is reduced.
    ``push``: when Python hands the allreduces over.
    """

    inferred: bool
    unknown_s: float
    steps: pd.DataFrame
    ready: pd.DataFrame
    buckets: pd.DataFrame
    fuse: pd.DataFrame
    control_s: Numbers
    control_period_s: Numbers
    runs_ahead: bool
    own_variation: float
    enqueue_s: Numbers
    callback_s: Numbers
    push: PushTimes

    @property
    def step_s(self) -> float:
        """Median step time."""
        return float(self.steps["step_s"].median())


def observe(trace: Trace) -> Observations:
    """Read the tables of `Observations` from `trace`.

    Raises UserError when it holds fewer than two whole steps after the first, or no backward pass.
    """
    events = trace.events(
        kinds=[
            Kind.FORWARD,
            Kind.BACKWARD,
            Kind.UPDATE,
            Kind.PUSH,
            Kind.READY,
            Kind.ENQUEUE,
            Kind.NEGOTIATE,
            Kind.ALLREDUCE,
            Kind.FUSE_IN,
            Kind.FUSE_OUT,
            Kind.DONE,
            *LANE_KINDS,
        ],
        columns=["step", "rank", "host", "kind", "tensor", "bucket", "bytes", "t_start_ns", "t_end_ns"],
    )
    inferred = not has_marks(events)
    unknown_s = 0.0
    if inferred:
        marked = with_marks(events)
        events, unknown_s = marked.events, marked.unknown_s
    whole = whole_steps(events) if inferred else trace.step_times()
    whole = whole[whole["step"] >= 1]
    counts = whole.groupby("step")["rank"].nunique()
    wanted = counts[counts == counts.max()].index if len(counts) else counts.index
    if len(wanted) < 2:
        raise UserError(
            f"{trace.path} holds {len(wanted)} whole steps after the first; record at least 4 steps"
        )
    control_s = control_calls_s(events, [int(step) for step in wanted])
    events = events[events["step"].isin(wanted)]
    events = events.assign(seconds=(events["t_end_ns"] - events["t_start_ns"]) * _NS)
    steps, anchors = _steps(events, whole[whole["step"].isin(wanted)])
    calls = _calls(events, anchors, _reduced(events, trace))
    return Observations(
        inferred=inferred,
        unknown_s=unknown_s,
        steps=steps,
        ready=_ready(events, anchors),
        buckets=_buckets(events, calls, lanes_of(trace), _aligned(trace)),
        fuse=_copies(calls),
        control_s=control_s,
        control_period_s=_control_period(events, anchors),
        runs_ahead=_runs_ahead(events, anchors),
        own_variation=_own_variation(anchors),
        enqueue_s=_enqueue(events),
        callback_s=_callbacks(events),
        push=_push_times(events, anchors),
    )


def lanes_of(trace: Trace) -> int:
    """Lanes per host of the recorded run, 0 for stock Horovod."""
    value = trace.meta.settings.get("aux")
    return int(value) if isinstance(value, int | float) else 0


def update_group_of(trace: Trace) -> int:
    """Neighbouring parameters that one optimizer operation of the recorded run updates; MXNet's usual number where it is not said."""
    value = trace.meta.settings.get("optimizer_aggregation")
    return max(1, int(value)) if isinstance(value, int | float) else Workload.update_group


def _aligned(trace: Trace) -> bool:
    """Do the hosts' clocks agree well enough to compare stamps of different ranks?"""
    return all(
        host.clock_offset_ns is not None and (host.clock_uncertainty_ns or 0) <= _ALIGNED_NS
        for host in trace.meta.hosts
    )


def _steps(events: pd.DataFrame, whole: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Per step the slowest rank's times, and per (step, rank) the stamps that other tables count from."""
    keys = ["step", "rank"]

    def edge(kind: Kind, column: str, how: str) -> Any:
        chosen = events[events["kind"] == kind.value]
        return chosen.groupby(keys)[column].agg(how)

    table = whole.set_index(keys)[["t_start_ns", "t_end_ns"]].rename(
        columns={"t_start_ns": "begin_ns", "t_end_ns": "next_ns"}
    )
    table["forward_end_ns"] = edge(Kind.FORWARD, "t_end_ns", "max")
    table["backward_start_ns"] = edge(Kind.BACKWARD, "t_start_ns", "min")
    table["backward_end_ns"] = edge(Kind.BACKWARD, "t_end_ns", "max")
    table["update_end_ns"] = edge(Kind.UPDATE, "t_end_ns", "max")
    table["last_done_ns"] = edge(Kind.DONE, "t_end_ns", "max")
    if table["backward_end_ns"].isna().all():
        raise UserError(
            "the trace marks no backward pass; record it with 'vsketchdlc trace', which adds the marks"
        )
    table["update_end_ns"] = (
        table["update_end_ns"].fillna(table["last_done_ns"]).fillna(table["backward_end_ns"])
    )
    table["last_done_ns"] = table["last_done_ns"].fillna(table["backward_end_ns"])
    anchors = table.dropna(subset=["forward_end_ns", "backward_end_ns"]).reset_index()
    seconds = pd.DataFrame(
        {
            "step": anchors["step"],
            "step_s": (anchors["next_ns"] - anchors["begin_ns"]) * _NS,
            "forward_s": (anchors["forward_end_ns"] - anchors["begin_ns"]) * _NS,
            "backward_s": (anchors["backward_end_ns"] - anchors["backward_start_ns"]) * _NS,
            "tail_s": ((anchors["update_end_ns"] - anchors["last_done_ns"]) * _NS).clip(lower=0.0),
            "gap_s": ((anchors["next_ns"] - anchors["update_end_ns"]) * _NS).clip(lower=0.0),
        }
    )
    return seconds.groupby("step", as_index=False).mean(), anchors


def _ready(events: pd.DataFrame, anchors: pd.DataFrame) -> pd.DataFrame:
    ready = events[events["kind"] == Kind.READY.value].merge(
        anchors[["step", "rank", "backward_start_ns"]], on=["step", "rank"]
    )
    if ready.empty:
        raise UserError(
            "the trace has no gradient events; was the model trained with Horovod's DistributedTrainer?"
        )
    ready = ready.assign(ready_s=((ready["t_end_ns"] - ready["backward_start_ns"]) * _NS).clip(lower=0.0))
    ready = ready.sort_values(["step", "rank", "ready_s"])
    # The gradients of one bulk become ready together; the engine's threads then take them one by one.
    keys = [ready["step"], ready["rank"]]
    bulk = (ready.groupby(keys)["ready_s"].diff() > _BULK_GAP_S).groupby(keys).cumsum()
    ready["bulk"] = bulk
    ready["ready_s"] = ready.groupby([*keys, bulk])["ready_s"].transform("max")
    last = ready.groupby(["step", "tensor"], as_index=False).agg(
        ready_s=("ready_s", "max"), bytes=("bytes", "max")
    )
    table = last.groupby("tensor").agg(
        ready_s=("ready_s", "median"), sigma_s=("ready_s", "std"), bytes=("bytes", "max")
    )
    table["bit"] = _cache_order(events)
    table = table.reset_index().sort_values(["ready_s", "bit", "tensor"], ignore_index=True)
    return _in_usual_bulks(table, ready)


def _in_usual_bulks(table: pd.DataFrame, ready: pd.DataFrame) -> pd.DataFrame:
    """`table` with one ready time for neighbours that are usually of one bulk.

    Now and then another thread delays the engine between two gradients of a bulk; the bulk is one all the same.
    """
    bulks = ready.pivot_table(index=["step", "rank"], columns="tensor", values="bulk")[list(table["tensor"])]
    apart = (bulks.diff(axis=1) != 0).mean() > 0.5
    usual = apart.to_numpy()[: len(table)].copy()
    usual[0] = True
    table["ready_s"] = table.groupby(usual.cumsum())["ready_s"].transform("median")
    return table.sort_values(["ready_s", "bit", "tensor"], ignore_index=True)


def _cache_order(events: pd.DataFrame) -> Any:
    """Place of each tensor in Horovod's response cache, by tensor: the order in which callbacks came, step by step."""
    done = events[events["kind"] == Kind.DONE.value].sort_values("t_end_ns")
    place = done.groupby(["step", "rank"]).cumcount()
    return place.groupby(done["tensor"]).median().rank(method="first")


def _buckets(events: pd.DataFrame, calls: pd.DataFrame, aux: int, aligned: bool) -> pd.DataFrame:
    reduced = calls[calls["kind"] == Kind.ALLREDUCE.value]
    table = _together(reduced.assign(lanes=took_lanes(reduced, events, aux)), aligned)
    if table.empty:
        raise UserError(
            "the trace has no allreduce of gradients: run with two ranks or more, through Horovod over MPI"
        )
    members = events[(events["kind"] == Kind.DONE.value) & events["bucket"].notna()]
    sizes = members.groupby(["step", "rank", "bucket"]).size().groupby(level=["step", "bucket"]).max()
    return table.merge(sizes.rename("tensors").reset_index(), on=["step", "bucket"], how="left").fillna(
        {"tensors": 1}
    )


def _reduced(events: pd.DataFrame, trace: Trace) -> pd.DataFrame:
    """The allreduces of each rank, with the bytes of weights that can be updated after each."""
    of_buckets = events[events["bucket"].notna()]
    reduced = of_buckets[of_buckets["kind"] == Kind.ALLREDUCE.value]
    done = of_buckets[(of_buckets["kind"] == Kind.DONE.value) & of_buckets["tensor"].notna()]
    together = update_group_of(trace)
    return reduced.assign(updated=bytes_updated(reduced, done, trace.meta.tensors, together))


def _calls(events: pd.DataFrame, anchors: pd.DataFrame, reduced: pd.DataFrame) -> pd.DataFrame:
    """Work on buckets, one row a rank: bytes, seconds, and what compute the rank does beside it."""
    of_buckets = events[events["bucket"].notna()]
    calls = of_buckets[of_buckets["kind"].isin([kind.value for kind in _OF_BUCKETS])].merge(
        anchors[["step", "rank", "begin_ns", "backward_end_ns"]], on=["step", "rank"]
    )
    within = (calls[["t_end_ns", "backward_end_ns"]].min(axis=1) - calls["t_start_ns"]).clip(lower=0)
    updates_s = update_work_s(calls, reduced, anchors).where(calls["kind"] != Kind.FUSE_OUT.value, 0.0)
    return calls.assign(
        busy_s=within * _NS,
        update_s=updates_s,
        start_s=(calls["t_start_ns"] - calls["begin_ns"]) * _NS,
    )


def _copies(calls: pd.DataFrame) -> pd.DataFrame:
    """Copies into and out of the fusion buffer, the mean over the ranks: now and then one loses its core in between."""
    calls = calls[calls["kind"] != Kind.ALLREDUCE.value]
    columns = ["bytes", "seconds", "busy_s", "update_s", "start_s"]
    return calls.groupby(["step", "bucket", "kind"], as_index=False)[columns].mean()


def _together(calls: pd.DataFrame, aligned: bool) -> pd.DataFrame:
    """Collectives, one row for all ranks: from the last arrival to the last end, or the shortest duration."""
    table = calls.groupby(["step", "bucket", "kind"], as_index=False).agg(
        bytes=("bytes", "max"),
        seconds=("seconds", "min"),
        busy_s=("busy_s", "min"),
        update_s=("update_s", "min"),
        start_s=("start_s", "max"),
        lanes=("lanes", "any"),
        last_start_ns=("t_start_ns", "max"),
        last_end_ns=("t_end_ns", "max"),
    )
    if aligned:
        table["seconds"] = ((table["last_end_ns"] - table["last_start_ns"]) * _NS).clip(lower=1e-6)
    table["busy_s"] = table[["busy_s", "seconds"]].min(axis=1)
    return table[["step", "bucket", "kind", "bytes", "seconds", "busy_s", "update_s", "start_s", "lanes"]]


def _control_period(events: pd.DataFrame, anchors: pd.DataFrame) -> Numbers:
    calls = events[(events["kind"] == Kind.NEGOTIATE.value) & events["tensor"].isna()].merge(
        anchors[["step", "rank", "begin_ns", "forward_end_ns"]], on=["step", "rank"]
    )
    within = (calls["t_start_ns"] >= calls["begin_ns"]) & (calls["t_start_ns"] <= calls["forward_end_ns"])
    groups = calls[within].groupby(["step", "rank"])["t_start_ns"].agg(["min", "max", "size"])
    groups = groups[groups["size"] >= 4]
    return np.asarray((groups["max"] - groups["min"]) * _NS / (groups["size"] - 1), dtype=float)


def _own_variation(anchors: pd.DataFrame) -> float:
    compute = (anchors["backward_end_ns"] - anchors["begin_ns"]).astype(float)
    compute /= compute.groupby(anchors["rank"]).transform("median")
    ranks = compute.groupby(anchors["step"]).transform("size")
    away = (compute - compute.groupby(anchors["step"]).transform("mean"))[ranks > 1]
    if away.empty:
        return 0.0
    unbiased = math.sqrt(float((ranks / (ranks - 1).clip(lower=1))[ranks > 1].mean()))
    return 1.4826 * float(away.abs().median()) * unbiased


def _runs_ahead(events: pd.DataFrame, anchors: pd.DataFrame) -> bool:
    """Are the next step's gradients pushed, most often, before the last weight of this step is written?"""
    pushes = (
        events[events["kind"] == Kind.PUSH.value].groupby(["step", "rank"])["t_start_ns"].min().reset_index()
    )
    pushes["step"] -= 1
    pairs = pushes.merge(anchors[["step", "rank", "update_end_ns"]], on=["step", "rank"])
    return len(pairs) > 0 and float((pairs["t_start_ns"] < pairs["update_end_ns"]).mean()) > 0.5


def _enqueue(events: pd.DataFrame) -> Numbers:
    enqueue = events[events["kind"] == Kind.ENQUEUE.value]
    return np.asarray(enqueue.groupby(["rank", "step"])["seconds"].mean(), dtype=float)


def _push_times(events: pd.DataFrame, anchors: pd.DataFrame) -> PushTimes:
    pushes = events[events["kind"] == Kind.PUSH.value].merge(
        anchors[["step", "rank", "begin_ns"]], on=["step", "rank"]
    )
    if pushes.empty:
        return PushTimes()
    groups = pushes.groupby(["step", "rank"]).agg(
        begin_ns=("begin_ns", "first"),
        first_ns=("t_start_ns", "min"),
        last_ns=("t_start_ns", "max"),
        count=("tensor", "size"),
        call_s=("seconds", "mean"),
    )
    every_s = (groups["last_ns"] - groups["first_ns"]) * _NS / (groups["count"] - 1).clip(lower=1)
    first_s = (groups["first_ns"] - groups["begin_ns"]) * _NS
    return PushTimes(float(first_s.median()), float(every_s.median()), float(groups["call_s"].median()))


def _callbacks(events: pd.DataFrame) -> Numbers:
    """What one gradient's callback takes, step by step: in a bucket the n-th waits for the n - 1 before it.

    From all delays of a step together: where the first callback starts an update, the others now and then lose the core.
    """
    done = events[(events["kind"] == Kind.DONE.value) & events["bucket"].notna()]
    of_bucket = done.sort_values("t_end_ns").groupby(["step", "rank", "bucket"])["t_end_ns"]
    delays = pd.DataFrame(
        {
            "step": done["step"],
            "late_s": (done["t_end_ns"] - of_bucket.transform("min")) * _NS,
            "before": of_bucket.cumcount(),
        }
    )
    sums = delays.groupby("step")[["late_s", "before"]].sum()
    sums = sums[sums["before"] > 0]
    return np.asarray(sums["late_s"] / sums["before"], dtype=float)
