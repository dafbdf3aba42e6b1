"""Engine operations and MPI calls of one process: which tensor went with which collective.

Everything that Horovod's background thread did is in one log in its true order. All completions after a data
call and before the next MPI call belong to that call (reference 4, "Join rule"): so buckets need no look into
Horovod. The last control call before a data call is where all ranks agreed on its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import raw
from ..raw import RawProcess, Records
from ..schema import Kind
from .rows import Integers

# mpi_constant numbers of mpi_abi.h as mpi.c writes them
TYPE_BYTE, TYPE_INT = 1, 14
OP_MIN, OP_MAX, OP_BAND, OP_BOR = 1, 2, 5, 7
UNKNOWN_STEP = -1

DATA_KINDS = {
    raw.ALLREDUCE: Kind.ALLREDUCE,
    raw.BCAST: Kind.BROADCAST,
    raw.ALLGATHER: Kind.ALLGATHER,
    raw.ALLGATHERV: Kind.ALLGATHER,
    raw.ALLTOALL: Kind.ALLTOALL,
    raw.ALLTOALLV: Kind.ALLTOALL,
    raw.REDUCE_SCATTER: Kind.REDUCESCATTER,
    raw.BARRIER: Kind.BARRIER,
    raw.GATHER: Kind.ALLGATHER,
    raw.GATHERV: Kind.ALLGATHER,
}


@dataclass
class Calls:
    """MPI calls of one process, in log order; all columns have one entry a call."""

    call: Integers
    control: npt.NDArray[np.bool_]
    bytes: Integers
    start_ns: Integers
    end_ns: Integers
    number: Integers  # of the call on its communicator
    communicator: Integers
    agreed_ns: Integers  # data calls: end of the last control call before it
    before_ns: Integers  # data calls: end of whatever this thread last did before it
    first_done_ns: Integers  # data calls: first completion after it, 0 where none
    members: Integers  # data calls: completions that belong to it
    step: Integers
    bucket: Integers


@dataclass
class Operations:
    """Engine operations of one process; entry i is operation number i + 1, 0 where a stamp is missing."""

    name: Integers
    step: Integers
    push_start_ns: Integers
    push_end_ns: Integers
    ready_ns: Integers
    enqueued_ns: Integers
    done_ns: Integers
    call: Integers  # place in Calls of its data call, -1 unknown


def decode_operations(process: RawProcess) -> tuple[Operations, Calls]:
    """The engine operations and MPI calls of `process`, joined."""
    logs = [log for log in process.logs if len(log.records)]
    calls = _no_calls()
    ops = _operations(logs)
    parts: list[Calls] = []
    for log in logs:
        part = _calls(log)
        if part is None:
            continue
        place_of_record, part_calls = part
        offset = sum(len(p.call) for p in parts)
        _join(log, place_of_record, part_calls, ops, offset)
        parts.append(part_calls)
    if parts:
        names = Calls.__dataclass_fields__
        calls = Calls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})
    number_buckets(ops, calls)
    return ops, calls


def _operations(logs: list[raw.RawLog]) -> Operations:
    numbers = [np.zeros(1, dtype=np.int64)]
    for log in logs:
        of_ops = log.records[log.records["kind"] <= raw.DONE]
        numbers.append((of_ops["b"] & 0xFFFFFFFF).astype(np.int64))
    count = int(np.concatenate(numbers).max())
    ops = Operations(*(np.zeros(count, dtype=np.int64) for _ in range(8)))
    ops.call[:] = -1
    ops.step[:] = UNKNOWN_STEP
    for log in logs:
        start, end = log.start_ns, log.end_ns
        place = (log.records["b"] & 0xFFFFFFFF).astype(np.int64) - 1
        push = np.flatnonzero(log.records["kind"] == raw.PUSH)
        ops.name[place[push]] = (log.records["b"][push] >> 32).astype(np.int64)
        ops.step[place[push]] = (log.records["c"][push] >> 32).astype(np.uint32).astype(np.int32)
        ops.push_start_ns[place[push]], ops.push_end_ns[place[push]] = start[push], end[push]
        ready = np.flatnonzero(log.records["kind"] == raw.READY)
        ops.ready_ns[place[ready]], ops.enqueued_ns[place[ready]] = start[ready], end[ready]
        done = np.flatnonzero(log.records["kind"] == raw.DONE)
        ops.done_ns[place[done]] = start[done]
    return ops


def _no_calls() -> Calls:
    columns = {name: np.zeros(0, dtype=np.int64) for name in Calls.__dataclass_fields__ if name != "control"}
    return Calls(control=np.zeros(0, dtype=bool), **columns)


def _is_control(records: Records) -> npt.NDArray[np.bool_]:
    """Which MPI calls negotiate instead of carrying tensors (reference 1.5, 3.1)."""
    call, kind, op = records["a"] & 31, (records["a"] >> 5) & 31, (records["a"] >> 10) & 15
    after_gatherv = np.concatenate([[False], call[:-1] == raw.GATHERV])
    control = (call == raw.ALLREDUCE) & (
        (op == OP_BAND) | (op == OP_BOR) | ((kind == TYPE_INT) & ((op == OP_MIN) | (op == OP_MAX)))
    )
    control |= (call == raw.GATHER) | (call == raw.GATHERV)
    control |= (call == raw.BCAST) & ((kind == TYPE_BYTE) | after_gatherv)
    control |= ((call == raw.ALLGATHER) | (call == raw.ALLTOALL)) & (kind == TYPE_INT)
    return np.asarray(control, dtype=bool)


def _calls(log: raw.RawLog) -> tuple[Integers, Calls] | None:
    """Positions of the MPI records in `log`, and what they say."""
    places = np.flatnonzero(log.records["kind"] == raw.MPI)
    if not len(places):
        return None
    records = log.records[places]
    word = records["c"]
    zeros = [np.zeros(len(places), dtype=np.int64) for _ in range(6)]
    calls = Calls(
        (records["a"] & 31).astype(np.int64),
        _is_control(records),
        records["b"].astype(np.int64),
        log.start_ns[places],
        log.end_ns[places],
        (word & 0xFFFFFFFF).astype(np.int64),
        (word >> 48).astype(np.int64),
        *zeros,
    )
    calls.step[:] = UNKNOWN_STEP
    return places, calls


def _join(log: raw.RawLog, places: Integers, calls: Calls, ops: Operations, offset: int) -> None:
    """Give every completion in `log` its data call, and every data call what happened around it."""
    data = np.flatnonzero(~calls.control)
    control_ends = np.where(calls.control, calls.end_ns, 0)
    calls.agreed_ns[:] = np.maximum.accumulate(control_ends)
    done_places = np.flatnonzero(log.records["kind"] == raw.DONE)
    before = np.searchsorted(places, done_places) - 1  # the call before each completion
    good = before >= 0
    good[good] &= ~calls.control[before[good]]
    done_start = log.start_ns[done_places]
    mine = before[good]
    np.add.at(calls.members, mine, 1)
    first = np.full(len(places), np.iinfo(np.int64).max)
    np.minimum.at(first, mine, done_start[good])
    calls.first_done_ns[:] = np.where(calls.members > 0, first, 0)
    numbers = (log.records["b"][done_places[good]] & 0xFFFFFFFF).astype(np.int64) - 1
    ops.call[numbers] = mine + offset
    # End of what came just before each data call: another call, or the last completion of another bucket. Its own
    # socket calls stand before it too, since a record is written at the end of what it tells.
    works = np.flatnonzero(np.isin(log.records["kind"], (raw.MPI, raw.DONE)))
    before_data = np.searchsorted(works, places[data]) - 1
    previous = works[np.maximum(before_data, 0)]
    calls.before_ns[data] = np.where(before_data >= 0, log.end_ns[previous], calls.start_ns[data])
    calls.before_ns[data] = np.maximum(calls.before_ns[data], calls.agreed_ns[data])
    calls.before_ns[data] = np.minimum(calls.before_ns[data], calls.start_ns[data])


def number_buckets(ops: Operations, calls: Calls) -> None:
    """Steps of data calls are those of their tensors; buckets count the data calls within a step."""
    known = ops.call >= 0
    step = np.full(len(calls.call), np.iinfo(np.int64).min)
    np.maximum.at(step, ops.call[known], ops.step[known])
    has = step > np.iinfo(np.int64).min
    calls.step[has] = step[has]
    calls.bucket[:] = -1
    data = np.flatnonzero(~calls.control)
    order = data[np.lexsort((calls.start_ns[data], calls.step[data]))]
    steps = calls.step[order]
    if len(order):
        new = np.concatenate([[True], steps[1:] != steps[:-1]])
        starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        calls.bucket[order] = np.arange(len(order)) - starts
