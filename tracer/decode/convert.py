"""A recording becomes a Trace: decode every process, align the hosts' clocks, name what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .. import raw
from ..raw import RawProcess
from ..schema import Kind
from ..trace import HostInfo, Trace, TraceMeta, write_trace
from .clocks import Clock, bounds_between, fit_clock
from .horovod import DATA_KINDS, Calls, Operations, decode_operations, number_buckets
from .names import Names, names_of
from .rows import (
    ENGINE,
    HOROVOD,
    NULL,
    PYTHON,
    TENSORS,
    Integers,
    Rows,
    Tensors,
    as_table,
    concatenated,
    rows,
)
from .steps import step_rows


@dataclass
class Decoded:
    """One process, decoded; stamps still on its own host's clock."""

    process: RawProcess
    names: Names
    operations: Operations
    calls: Calls


def convert(recording: list[RawProcess], target: Path, command: list[str]) -> Trace:
    """Write the processes of `recording` as a Trace to folder `target`, whole or not at all.

    `recording` must not be empty. Raises UserError when `target` cannot be written.
    """
    decoded = [Decoded(process, names_of(process), *decode_operations(process)) for process in recording]
    for one in decoded:
        _count_steps_without_marks(one)
    meta = _meta(decoded, command)
    clocks = _align(decoded, meta)
    tensors = Tensors()
    for info in meta.tensors:
        tensors.number(info)
    expanded = [_expand(one, tensors) for one in decoded]
    last = _last_to_enqueue(decoded, expanded, clocks)
    hosts = {host.name: place for place, host in enumerate(meta.hosts)}
    tables = []
    for one, members, peers in zip(decoded, expanded, last, strict=True):
        parts = [
            *_tensor_rows(one, members, peers),
            *_call_rows(one),
            *step_rows(one.process, one.names, one.operations),
        ]
        process = hosts[one.process.host] << 32 | one.process.pid
        tables.append(
            as_table(
                concatenated(parts), tensors, rank=one.process.rank, host=one.process.host, process=process
            )
        )
    return write_trace(target, meta, pa.concat_tables(tables))


def _count_steps_without_marks(one: Decoded) -> None:
    """Where the script has no marks (no Gluon trainer), the nth time a tensor is reduced is step n."""
    ops = one.operations
    reduced = np.isin(ops.name, [n for n, op in one.names.operations.items() if op.kind == "allreduce" and n])
    if not reduced.any() or (ops.step >= 0).any():
        return
    order = np.flatnonzero(reduced)[np.argsort(ops.name[reduced], kind="stable")]
    names = ops.name[order]
    new = np.concatenate([[True], names[1:] != names[:-1]])
    starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    ops.step[order] = np.arange(len(order)) - starts
    number_buckets(ops, one.calls)


@dataclass
class Members:
    """One row for every tensor of every operation (a group carries several)."""

    operation: Integers
    tensor: Integers  # NULL where the hook saw no name
    bytes: Integers


def _expand(one: Decoded, tensors: Tensors) -> Members:
    seen = np.flatnonzero(one.operations.push_start_ns > 0)
    names = one.operations.name[seen]
    known = {
        number: [(tensors.number(info), info.bytes) for info in operation.tensors]
        for number, operation in one.names.operations.items()
    }
    widths = np.array([len(known.get(number, [(0, 0)])) for number in names.tolist()], dtype=np.int64)
    flat: list[tuple[int, int]] = []
    for number in names.tolist():
        flat.extend(known.get(number, [(NULL, NULL)]))
    columns: Integers = np.array(flat, dtype=np.int64).reshape(-1, 2)
    return Members(np.repeat(seen, widths), columns[:, 0], columns[:, 1])


def _tensor_rows(one: Decoded, members: Members, peer: Integers) -> list[Rows]:
    """push, ready, enqueue, negotiate and done of every tensor, as far as each got before the log ends."""
    ops, calls, every = one.operations, one.calls, members.operation

    def made(kind: Kind, track: int, start: Integers, end: Integers, chosen: Any, **more: Any) -> Rows:
        places = np.flatnonzero(chosen)
        return rows(
            kind,
            track,
            start[places],
            end[places],
            step=ops.step[every[places]],
            tensor=members.tensor[places],
            bytes_=members.bytes[places],
            **{name: value[places] for name, value in more.items()},
        )

    call = ops.call[every]
    pushed, ready, enqueued, done = (
        stamps[every] for stamps in (ops.push_start_ns, ops.ready_ns, ops.enqueued_ns, ops.done_ns)
    )
    agreed = np.where(call >= 0, _take(calls.agreed_ns, call), 0)
    collective_end = np.where(call >= 0, _take(calls.end_ns, call), enqueued)
    bucket = np.where(call >= 0, _take(calls.bucket, call), NULL)
    return [
        made(Kind.PUSH, PYTHON, pushed, ops.push_end_ns[every], pushed > 0),
        made(Kind.READY, TENSORS, pushed, ready, ready > 0),
        made(Kind.ENQUEUE, ENGINE, ready, enqueued, ready > 0),
        made(Kind.NEGOTIATE, TENSORS, enqueued, agreed, agreed > 0, bucket=bucket, peer=peer),
        made(Kind.DONE, TENSORS, collective_end, done, done > 0, bucket=bucket),
    ]


def _take(values: Integers, places: Integers) -> Integers:
    """`values` at `places`; anything where a place is -1."""
    return values[places] if len(values) else np.zeros(len(places), dtype=np.int64)


def _call_rows(one: Decoded) -> list[Rows]:
    """Control calls, and the data calls with the copies around them."""
    calls = one.calls
    made = []
    control = np.flatnonzero(calls.control)
    if len(control):
        made.append(
            rows(
                Kind.NEGOTIATE, HOROVOD, calls.start_ns[control], calls.end_ns[control],
                step=_step_at(one, calls.start_ns[control]), bytes_=calls.bytes[control],
            )
        )  # fmt: skip
    for number, kind in DATA_KINDS.items():
        chosen = np.flatnonzero(~calls.control & (calls.call == number))
        if len(chosen):
            made.append(_bucket_rows(kind, calls, chosen, calls.start_ns, calls.end_ns))
    fused = np.flatnonzero(~calls.control & (calls.members > 1))
    if len(fused):
        made.append(_bucket_rows(Kind.FUSE_IN, calls, fused, calls.before_ns, calls.start_ns))
        made.append(_bucket_rows(Kind.FUSE_OUT, calls, fused, calls.end_ns, calls.first_done_ns))
    return made


def _bucket_rows(kind: Kind, calls: Calls, chosen: Integers, start: Integers, end: Integers) -> Rows:
    return rows(
        kind,
        HOROVOD,
        start[chosen],
        end[chosen],
        step=calls.step[chosen],
        bucket=calls.bucket[chosen],
        bytes_=calls.bytes[chosen],
    )


def _step_at(one: Decoded, stamps: Integers) -> Integers:
    """The step during which each stamp lies: the last one whose forward pass, or first push, began before it."""
    ops = one.operations
    begins: dict[int, int] = {}
    for log in one.process.logs:
        marks = log.records[(log.records["kind"] == raw.MARK) & (log.records["a"] == raw.FORWARD_BEGIN)]
        for step, stamp in zip(marks["b"].astype(np.int64).tolist(), marks["t"].tolist(), strict=True):
            begins[step] = min(begins.get(step, stamp), stamp)
    if not begins:
        for step, stamp in zip(ops.step.tolist(), ops.push_start_ns.tolist(), strict=True):
            if stamp and step >= 0:
                begins[step] = min(begins.get(step, stamp), stamp)
    if not begins:
        return np.full(len(stamps), -1, dtype=np.int64)
    steps = np.array(sorted(begins), dtype=np.int64)
    starts = np.array([begins[step] for step in steps.tolist()], dtype=np.int64)
    place = np.searchsorted(starts, stamps, side="right") - 1
    return np.where(place >= 0, steps[np.maximum(place, 0)], -1)


def _align(decoded: list[Decoded], meta: TraceMeta) -> dict[str, Clock | None]:
    """Clocks of all hosts against the first rank's; told in `meta`."""
    by_host: dict[str, list[Calls]] = {}
    for one in decoded:
        by_host.setdefault(one.process.host, []).append(one.calls)
    reference = meta.hosts[0].name
    clocks: dict[str, Clock | None] = {reference: Clock(0, uncertainty_ns=0)}
    for host in meta.hosts[1:]:
        clock = fit_clock(bounds_between(by_host[reference], by_host[host.name]))
        clocks[host.name] = clock
        if clock is None:
            meta.notes.append(
                f"the clock of host {host.name} cannot be aligned with {reference}: no collective of both is in the "
                f"trace, or they contradict each other; times of the two are not comparable"
            )
    for host in meta.hosts:
        clock = clocks[host.name]
        host.clock_offset_ns = None if clock is None else clock.offset_ns
        host.clock_drift = 0.0 if clock is None else clock.drift
        host.clock_middle_ns = 0 if clock is None else clock.middle_ns
        host.clock_uncertainty_ns = None if clock is None else clock.uncertainty_ns
    return clocks


def _last_to_enqueue(
    decoded: list[Decoded], expanded: list[Members], clocks: dict[str, Clock | None]
) -> list[Integers]:
    """For every process and each of its members: the rank that was last to have the tensor in its queue.

    `NULL` where it is not known: without a common clock, or where the tensor was never in a queue.
    """
    unknown = [np.full(len(members.tensor), NULL, dtype=np.int64) for members in expanded]
    if len(decoded) < 2 or any(
        clocks[one.process.host] is None or one.process.rank is None for one in decoded
    ):
        return unknown
    steps, tensors, ranks, stamps = [], [], [], []
    for one, members in zip(decoded, expanded, strict=True):
        clock = clocks[one.process.host]
        assert clock is not None
        steps.append(one.operations.step[members.operation])
        tensors.append(members.tensor)
        ranks.append(np.full(len(members.tensor), one.process.rank, dtype=np.int64))
        stamp = one.operations.enqueued_ns[members.operation]
        stamps.append(np.where(stamp > 0, clock.to_reference(stamp), np.iinfo(np.int64).min))
    step, tensor, rank, stamp = map(np.concatenate, (steps, tensors, ranks, stamps))
    if not len(step):
        return unknown
    order = np.lexsort((stamp, tensor, step))
    ends = (np.diff(step[order]) != 0) | (np.diff(tensor[order]) != 0)
    group = np.concatenate([[0], np.cumsum(ends)])
    last_place = np.concatenate([np.flatnonzero(ends), [len(order) - 1]])
    peers = np.empty(len(order), dtype=np.int64)
    peers[order] = rank[order][last_place][group]
    peers[stamp == np.iinfo(np.int64).min] = NULL
    edges = np.cumsum([len(part) for part in unknown])[:-1]
    return list(np.split(peers, edges))


def _meta(decoded: list[Decoded], command: list[str]) -> TraceMeta:
    first = decoded[0].process
    size = max(one.process.size for one in decoded)
    present = {one.process.rank for one in decoded if one.process.rank is not None}
    meta = TraceMeta(
        source="recorded", command=command, ranks=size, batch_per_rank=decoded[0].names.batch_size
    )
    meta.missing_ranks = [rank for rank in range(size) if rank not in present] if present else []
    hosts: dict[str, HostInfo] = {}
    for one in decoded:
        process = one.process
        host = hosts.setdefault(
            process.host,
            HostInfo(
                process.host,
                int(process.identity.get("cores", 0)) or None,
                machine=process.identity.get("machine") or None,
            ),
        )
        if process.rank is not None:
            host.ranks.append(process.rank)
        meta.lost_events += process.lost
    meta.hosts = list(hosts.values())
    seen: dict[str, Any] = {}
    for one in decoded:
        for info in one.names.gradients:
            seen.setdefault(info.name, info)
    meta.tensors = list(seen.values())
    meta.settings = _settings(first, decoded[0].names)
    meta.notes = _notes(decoded, meta)
    return meta


def _settings(process: RawProcess, names: Names) -> dict[str, Any]:
    told = names.settings
    settings: dict[str, Any] = {
        "mpi": process.identity.get("mpi"),
        "cycle_time_s": float(told.get("HOROVOD_CYCLE_TIME", 1.0)) / 1e3,
        "fusion_threshold_bytes": int(told.get("HOROVOD_FUSION_THRESHOLD", 128 << 20)),
        "cache_capacity": int(told.get("HOROVOD_CACHE_CAPACITY", 1024)),
        "optimizer_aggregation": names.aggregation,
        "aux": int(told.get("FASTHVD_AUX", 0)),
        "environment": told,
    }
    return settings


def _notes(decoded: list[Decoded], meta: TraceMeta) -> list[str]:
    notes = []
    if meta.missing_ranks:
        missing = ", ".join(str(rank) for rank in meta.missing_ranks)
        notes.append(f"no log of rank {missing}: what other ranks waited for there is not known")
    if meta.lost_events:
        notes.append(f"{meta.lost_events} events were not recorded: the size limit or the disk was full")
    if any(log.stopped == raw.STOPPED_BY_DISK for one in decoded for log in one.process.logs):
        notes.append("the disk was full: the trace ends early")
    if not any(one.names.parameters for one in decoded):
        notes.append(
            "the script uses no Gluon trainer: steps are counted by the tensors, layers are not known"
        )
    if any(len(op.tensors) > 1 for one in decoded for op in one.names.operations.values()):
        notes.append("tensors of one group share their stamps: Horovod completes a group as one operation")
    return notes
