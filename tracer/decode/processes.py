"""One process of a recording, decoded as far as it goes alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..raw import RawProcess
from .horovod import Calls, Operations, decode_operations, number_buckets
from .names import Names, names_of
from .tcp import Traffic, decode_traffic


@dataclass
class Decoded:
    """One process, decoded; stamps still on its own host's clock."""

    process: RawProcess
    names: Names
    operations: Operations
    calls: Calls
    traffic: Traffic

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
    operations, calls = decode_operations(process)
    one = Decoded(process, names_of(process), operations, calls, decode_traffic(process))
    _count_steps_without_marks(one)
    return one


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
