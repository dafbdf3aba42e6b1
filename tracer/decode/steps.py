"""Forward, backward and update of every step, from the hook's marks and the engine's markers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import raw
from ..raw import RawProcess
from ..schema import Kind
from .horovod import Operations
from .names import Names
from .rows import STEP, Integers, Rows, rows


def _marks(process: RawProcess) -> dict[int, dict[int, list[int]]]:
    """Stamps by mark and step, in order."""
    found: dict[int, dict[int, list[int]]] = {}
    for log in process.logs:
        chosen = log.records[log.records["kind"] == raw.MARK]
        for mark, step, stamp in zip(
            chosen["a"].tolist(), chosen["b"].astype(np.int64).tolist(), chosen["t"].tolist(), strict=True
        ):
            found.setdefault(mark, {}).setdefault(step, []).append(stamp)
    for by_step in found.values():
        for stamps in by_step.values():
            stamps.sort()
    return found


def step_rows(process: RawProcess, names: Names, ops: Operations) -> list[Rows]:
    """The rows forward, backward and update of `process`; empty when its script has no marks.

    A step outside the recorded window has no engine markers and so no rows, but for the forward pass that ends
    the last recorded step.
    """
    marks = _marks(process)
    begins = marks.get(raw.FORWARD_BEGIN, {})
    forward: list[tuple[int, int, int]] = []
    backward: list[tuple[int, int, int]] = []
    update: list[tuple[int, int, int]] = []
    last_ready = _last_stamp(ops, ops.ready_ns)
    first_ready = _first_stamp(ops, ops.ready_ns)
    first_done = _first_stamp(ops, ops.done_ns)
    last_done = _last_stamp(ops, ops.done_ns)
    updated = marks.get(raw.UPDATE_END, {})
    for step, starts in sorted(begins.items()):
        # The script runs ahead of the engine: the pass cannot start before the weights are written.
        before = updated[step - 1][-1] if step - 1 in updated else last_done.get(step - 1, 0)
        ends = marks.get(raw.FORWARD_END, {}).get(step, [])
        backward_ends = marks.get(raw.BACKWARD_END, {}).get(step, [])
        if len(ends) == 1 and step in first_ready:  # a marker that waited for a core comes late
            ends = [min(ends[0], first_ready[step])]
        for place, (start, end) in enumerate(zip(starts, ends, strict=False)):
            forward.append((step, min(max(start, before), end), end))
            if place < len(backward_ends):
                backward.append((step, end, backward_ends[place]))
            elif step in last_ready and place == len(ends) - 1:
                backward.append((step, end, last_ready[step]))
    first_updates = _first_updates(names, ops)
    for step, stamps in sorted(updated.items()):
        called = marks.get(raw.UPDATE_CALL, {}).get(step, stamps)[0]
        first_update = first_updates.get(step, first_done.get(step, 0))
        update.append((step, max(called, first_update), stamps[-1]))
    made = ((Kind.FORWARD, forward), (Kind.BACKWARD, backward), (Kind.UPDATE, update))
    return [_rows(kind, triples) for kind, triples in made if triples]


def _rows(kind: Kind, triples: list[tuple[int, int, int]]) -> Rows:
    columns: Integers = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return rows(kind, STEP, columns[:, 1], columns[:, 2], step=columns[:, 0])


def _last_stamp(ops: Operations, stamps: Integers) -> dict[int, int]:
    """By step: the last of `stamps` of its operations; 0 is no stamp."""
    return _greatest(ops.step, stamps, (ops.step >= 0) & (stamps != 0))


def _first_stamp(ops: Operations, stamps: Integers) -> dict[int, int]:
    """By step: the first of `stamps` of its operations; 0 is no stamp."""
    return {step: -stamp for step, stamp in _last_stamp(ops, -stamps).items()}


def _greatest(keys: Integers, values: Integers, chosen: Any) -> dict[int, int]:
    """The greatest value of each key, among the `chosen`."""
    keys, values = keys[chosen], values[chosen]
    if not len(keys):
        return {}
    order = np.argsort(keys, kind="stable")
    groups, starts = np.unique(keys[order], return_index=True)
    return dict(zip(groups.tolist(), np.maximum.reduceat(values[order], starts).tolist(), strict=True))


def _first_updates(names: Names, ops: Operations) -> dict[int, int]:
    """By step: when the first optimizer operation can start.

    The optimizer takes groups of `aggregation` parameters that follow each other by index; an operation starts
    when all its gradients are reduced.
    """
    order = {p["name"]: place for place, p in enumerate(names.parameters)}
    group_size = max(1, names.aggregation)
    groups = 1 + len(order) // group_size
    ends: dict[int, int] = {}
    for group, numbers in _names_by_group(names, order, group_size).items():
        chosen = np.isin(ops.name, numbers) & (ops.step >= 0) & (ops.done_ns > 0)
        ends.update(_greatest(ops.step * groups + group, ops.done_ns, chosen))
    answer: dict[int, int] = {}
    for key, stamp in ends.items():
        answer[key // groups] = min(answer.get(key // groups, stamp), stamp)
    return answer


def _names_by_group(names: Names, order: dict[str, int], group_size: int) -> dict[int, list[int]]:
    """Names of the allreduces that bring each optimizer group's gradients."""
    found: dict[int, list[int]] = {}
    for number, operation in names.operations.items():
        if operation.kind == "allreduce":
            for group in {
                order[t.parameter] // group_size for t in operation.tensors if t.parameter in order
            }:
                found.setdefault(group, []).append(number)
    return found
