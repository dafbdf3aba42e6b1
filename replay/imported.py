"""The workload of another tool's trace: what the file says, and, where it says nothing, an assumption that is named.

Horovod timelines, Kineto, Chakra and MXNet profiles each know only a part of a step. In this order:

1. Gradients are those that the file names; else each of its collectives is one; else all its sends together are
   one; else each kind of backward operator has one of 1 MB.
2. A gradient without a size has the median of those that have one; without any, 1 MB.
3. It is ready when the file shows it so, counted from the start of backward; without any time, at once.
4. Forward, backward and update last as long as the file's; without forward, half of backward.
5. The network and the costs are the model's typical values unless a calibration is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..model.workload import GradientTensor, Workload
from ..tracer.schema import Kind
from ..tracer.trace import Trace
from ..units import format_bytes, format_seconds

SIZE_BYTES = 1_000_000
_NS = 1e-9
_COLLECTIVES = (Kind.ALLREDUCE, Kind.REDUCESCATTER, Kind.ALLGATHER, Kind.ALLTOALL, Kind.BROADCAST)


@dataclass(frozen=True)
class FilledWorkload:
    """A workload, and in `filled` a sentence for everything that the file did not say."""

    workload: Workload
    ranks: int
    filled: list[str]
    step_s: float | None
    """Step time that the file shows, in s; None where it shows none."""


def imported_workload(trace: Trace) -> FilledWorkload:
    """The workload of an imported `trace`, see the module."""
    filled: list[str] = []
    events = trace.events(
        columns=["step", "rank", "kind", "tensor", "layer", "bytes", "t_start_ns", "t_end_ns"]
    )
    events = _one_step(events, filled)
    begin_ns = _backward_begin_ns(events)
    known = {tensor.name: tensor.bytes for tensor in trace.meta.tensors}
    tensors = (
        _named_tensors(events, begin_ns, known)
        or _from_collectives(events, begin_ns, filled)
        or _from_sends(events, filled)
    )
    if not tensors:
        tensors = _from_operators(events, begin_ns, filled)
    tensors = _with_sizes(tensors, filled)
    last_s = max((tensor.ready_s for tensor in tensors), default=0.0)
    forward_s, backward_s, update_s = (
        _seconds(events, kind) for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE)
    )
    if backward_s is None:
        backward_s = last_s
        filled.append(
            f"no backward pass is marked: it lasts until the last gradient is ready, {format_seconds(last_s)}"
            if last_s > 0
            else "the file has no times of computing: the step is communication only"
        )
    if forward_s is None:
        forward_s = backward_s / 2
        if forward_s > 0:
            filled.append(f"no forward pass is marked: half of backward, {format_seconds(forward_s)}")
    if update_s is None:
        update_s = 0.0
        filled.append("no optimizer is marked: it takes no time")
    ranks = max(2, trace.meta.ranks)
    if trace.meta.ranks < 2:
        filled.append(f"the file is of {trace.meta.ranks} rank: two ranks on two hosts are assumed")
    work = Workload(
        name=trace.path.name,
        tensors=tuple(_ordered(tensors, max(backward_s, last_s))),
        forward_s=forward_s,
        backward_s=max(backward_s, last_s),
        update_s=update_s,
        device="gpu",
        cpu_share=0.3,
        batch_per_rank=trace.meta.batch_per_rank or 1,
        source=f"{trace.meta.source} {trace.path}",
    )
    return FilledWorkload(work, ranks, filled, _step_s(trace))


def _one_step(events: pd.DataFrame, filled: list[str]) -> pd.DataFrame:
    """Events of the fullest step of the rank that shows most; the whole file where no step is marked."""
    marked = events[events["step"] >= 0]
    if marked.empty:
        filled.append("the file marks no steps: all of it is one step")
        chosen = events
    else:
        step = marked.groupby("step").size().idxmax()
        chosen = marked[marked["step"] == step]
    ready = chosen[chosen["kind"] == Kind.READY.value]
    if ready["rank"].nunique() > 1:  # a timeline: the ranks' requests as one of them saw them
        return chosen
    rank = chosen.groupby("rank").size()
    return chosen if rank.empty else chosen[chosen["rank"] == rank.idxmax()]


def _backward_begin_ns(events: pd.DataFrame) -> int:
    backward = events[events["kind"] == Kind.BACKWARD.value]
    if not backward.empty:
        return int(backward["t_start_ns"].min())
    ready = events[events["kind"] == Kind.READY.value]
    some = ready if not ready.empty else events
    return int(some["t_end_ns"].min()) if len(some) else 0


def _named_tensors(events: pd.DataFrame, begin_ns: int, known: Mapping[str, int]) -> list[GradientTensor]:
    """Gradients that the file names, ready when its last rank had them."""
    named = events[
        events["tensor"].notna()
        & events["kind"].isin([Kind.READY.value, Kind.NEGOTIATE.value, Kind.DONE.value])
    ]
    if named.empty:
        return []
    ready = named[named["kind"] == Kind.READY.value].groupby("tensor")["t_end_ns"].max()
    begun = named.groupby("tensor")["t_start_ns"].min()
    sizes = named.groupby("tensor")["bytes"].max()
    layers = named.groupby("tensor")["layer"].first()
    return [
        _tensor(
            str(name),
            layers.get(name),
            known.get(str(name), sizes.get(name)),
            ready.get(name, begun[name]) - begin_ns,
            number,
        )
        for number, name in enumerate(begun.sort_values().index)
    ]


def _from_collectives(events: pd.DataFrame, begin_ns: int, filled: list[str]) -> list[GradientTensor]:
    kinds = [kind.value for kind in _COLLECTIVES]
    calls = events[events["kind"].isin(kinds)].sort_values("t_start_ns")
    reduced = calls[calls["kind"] == Kind.ALLREDUCE.value]
    chosen = reduced if not reduced.empty else calls
    if chosen.empty:
        return []
    others = len(calls) - len(chosen)
    filled.append(
        f"no gradient is named: each of the {len(chosen)} {chosen['kind'].iloc[0]} calls is one"
        + (f"; {others} other collectives are left out" if others else "")
    )
    return [
        _tensor(f"{row['kind']}.{number}", None, row["bytes"], row["t_start_ns"] - begin_ns, number)
        for number, row in enumerate(chosen.to_dict("records"))
    ]


def _from_sends(events: pd.DataFrame, filled: list[str]) -> list[GradientTensor]:
    sends = events[events["kind"] == Kind.SOCKET_SEND.value]
    total = sends["bytes"].sum()
    if sends.empty or not total > 0:
        return []
    filled.append(
        f"no gradient and no collective, only {len(sends)} sends: one gradient of their bytes, ready at once"
    )
    return [_tensor("sends.0", None, total, 0.0, 0)]


def _from_operators(events: pd.DataFrame, begin_ns: int, filled: list[str]) -> list[GradientTensor]:
    operators = events[events["kind"] == Kind.OPERATOR.value]
    names = operators["layer"].astype("string").fillna("")
    backward = operators[names.str.contains("backward", case=False)]
    chosen = (backward if not backward.empty else operators).sort_values("t_end_ns")
    per_name = chosen.drop_duplicates("layer")
    filled.append(
        f"the file has no communication: {max(1, len(per_name))} gradients, one a kind of backward operator"
    )
    if per_name.empty:
        return [GradientTensor("gradient.0", "gradient.0", 0)]
    return [
        _tensor(f"gradient.{number}", row["layer"], None, row["t_end_ns"] - begin_ns, number)
        for number, row in enumerate(per_name.to_dict("records"))
    ]


def _tensor(name: str, layer: object, nbytes: Any, ready_ns: float, number: int) -> GradientTensor:
    """One gradient; 0 bytes stand for an unknown size until `_with_sizes`."""
    size = 0 if nbytes is None or pd.isna(nbytes) else int(nbytes)
    text = str(layer) if isinstance(layer, str) and layer else name
    return GradientTensor(name, text, max(0, size), "float32", max(0.0, float(ready_ns) * _NS), number)


def _with_sizes(tensors: Sequence[GradientTensor], filled: list[str]) -> list[GradientTensor]:
    known = sorted(tensor.bytes for tensor in tensors if tensor.bytes > 0)
    size = known[len(known) // 2] if known else SIZE_BYTES
    lacking = len(tensors) - len(known)
    if lacking:
        how = "the median of the others" if known else "an assumption"
        filled.append(f"{lacking} of {len(tensors)} gradients have no size: {format_bytes(size)} each, {how}")
    return [tensor if tensor.bytes > 0 else dataclasses.replace(tensor, bytes=size) for tensor in tensors]


def _ordered(tensors: Sequence[GradientTensor], end_s: float) -> list[GradientTensor]:
    """In ready order, none after the end of backward."""
    held = [dataclasses.replace(tensor, ready_s=min(tensor.ready_s, end_s)) for tensor in tensors]
    return sorted(held, key=lambda tensor: tensor.ready_s)


def _seconds(events: pd.DataFrame, kind: Kind) -> float | None:
    """Seconds of the step's events of `kind`; None where there are none, or none that last."""
    chosen = events[events["kind"] == kind.value]
    total = float((chosen["t_end_ns"] - chosen["t_start_ns"]).sum()) * _NS
    return total if total > 0 else None


def _step_s(trace: Trace) -> float | None:
    times = trace.step_times()
    if times.empty:
        return None
    return float((times["t_end_ns"] - times["t_start_ns"]).median()) * _NS
