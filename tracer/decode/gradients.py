"""Rows of single tensors: push, ready, enqueue, negotiate, done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..schema import Kind
from .clocks import Clock
from .processes import Decoded
from .rows import ENGINE, NULL, PYTHON, TENSORS, Integers, Rows, Tensors, rows


@dataclass
class Members:
    """One row for every tensor of every operation (a group carries several)."""

    operation: Integers
    tensor: Integers  # NULL where the hook saw no name
    bytes: Integers


def expand(one: Decoded, tensors: Tensors) -> Members:
    """The operations of `one`, a row for every tensor they carry; new tensors get a number in `tensors`."""
    seen = np.flatnonzero(one.operations.push_start_ns > 0)
    names = one.operations.name[seen]
    # Tensors of all names in one list; a name's tensors are the `width[name]` ones from `first[name]`. Number 0,
    # which the hook never gives, is the operation without a name: one tensor that is not known.
    count = 1 + max([0, *names.tolist(), *one.names.operations])
    first, width = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    number, size = [NULL], [NULL]
    for name, operation in one.names.operations.items():
        first[name], width[name] = len(number), len(operation.tensors)
        number += [tensors.number(info) for info in operation.tensors]
        size += [info.bytes for info in operation.tensors]
    widths = width[names]
    within = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
    places = np.repeat(first[names], widths) + within
    return Members(np.repeat(seen, widths), np.array(number)[places], np.array(size)[places])


def tensor_rows(one: Decoded, members: Members, peer: Integers) -> list[Rows]:
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


def last_to_enqueue(
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
