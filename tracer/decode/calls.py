"""Rows of MPI calls: control calls, and the data calls with the copies around them."""

from __future__ import annotations

import numpy as np

from ..schema import Kind
from .horovod import DATA_KINDS, Calls
from .processes import Decoded
from .rows import HOROVOD, Integers, Rows, rows


def call_rows(one: Decoded) -> list[Rows]:
    """Control calls, and the data calls with the copies around them."""
    calls = one.calls
    made = []
    control = np.flatnonzero(calls.control)
    if len(control):
        made.append(
            rows(
                Kind.NEGOTIATE, HOROVOD, calls.start_ns[control], calls.end_ns[control],
                step=step_at(one, calls.start_ns[control]), bytes_=calls.bytes[control],
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


def step_at(one: Decoded, stamps: Integers) -> Integers:
    """The step during which each stamp lies: the last one that had started. Before the first one known, the one before."""
    if not len(one.step_numbers):
        return np.full(len(stamps), -1, dtype=np.int64)
    place = np.searchsorted(one.step_starts_ns, stamps, side="right") - 1
    return np.where(place >= 0, one.step_numbers[np.maximum(place, 0)], one.step_numbers[0] - 1)
