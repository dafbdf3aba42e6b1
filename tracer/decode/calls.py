"""Rows of MPI calls: control calls, and the data calls with the copies around them."""

from __future__ import annotations

import numpy as np

from .. import raw
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
