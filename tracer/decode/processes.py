"""One process of a recording, decoded as far as it goes alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..raw import RawProcess
from ..schema import Kind
from .horovod import Calls, Operations, decode_operations, number_buckets
from .names import Names, names_of
from .rows import KIND_NUMBER, Integers, Rows
from .steps import step_rows
from .tcp import Traffic, decode_traffic


@dataclass
class Decoded:
    """One process, decoded; stamps still on its own host's clock.

    `step_rows` are its forward, backward and update; steps start where their forward pass does.
    """

    process: RawProcess
    names: Names
    operations: Operations
    calls: Calls
    traffic: Traffic
    step_rows: list[Rows]
    step_numbers: Integers
    step_starts_ns: Integers

    @property
    def rank(self) -> int | None:
        """Its rank in the job."""
        return self.process.rank

    @property
    def host(self) -> str:
        """Its host's name."""
        return self.process.host


def decode_process(process: RawProcess) -> Decoded:
    """`process` with names, operations, calls and traffic joined; steps known."""
    names = names_of(process)
    operations, calls = decode_operations(process)
    _count_steps_without_marks(names, operations, calls)
    marked = step_rows(process, names, operations)
    numbers, starts = _starts(marked, operations)
    return Decoded(process, names, operations, calls, decode_traffic(process), marked, numbers, starts)


def _starts(marked: list[Rows], ops: Operations) -> tuple[Integers, Integers]:
    """Steps in order and their starts: of the forward pass, or without marks of the first push."""
    forward = [part for part in marked if len(part) and part.kind[0] == KIND_NUMBER[Kind.FORWARD]]
    steps, stamps = (forward[0].step, forward[0].start_ns) if forward else (ops.step, ops.push_start_ns)
    known = (steps >= 0) & (stamps > 0)
    numbers, first = np.unique(steps[known], return_inverse=True)
    starts = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(starts, first, stamps[known])
    return numbers, np.maximum.accumulate(starts) if len(starts) else starts


def _count_steps_without_marks(named: Names, ops: Operations, calls: Calls) -> None:
    """Where the script has no marks (no Gluon trainer), the nth time a tensor is reduced is step n."""
    reduced = np.isin(ops.name, [n for n, op in named.operations.items() if op.kind == "allreduce" and n])
    if not reduced.any() or (ops.step >= 0).any():
        return
    order = np.flatnonzero(reduced)[np.argsort(ops.name[reduced], kind="stable")]
    names = ops.name[order]
    new = np.concatenate([[True], names[1:] != names[:-1]])
    starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    ops.step[order] = np.arange(len(order)) - starts
    number_buckets(ops, calls)
