"""A graph of work (Chakra, PyTorch execution traces) laid out in time, as rows of a Trace.

Where nodes have no start times, each starts when the last node that it depends on has ended: the schedule of a
machine with as many processors and links as the graph can use. Where they have no durations, they last no time.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..schema import Kind
from .event_rows import EventRows

_STEP = re.compile(r"^step(-?\d{1,9})\.([a-z_]+)(\.|$)")
_KINDS = {kind.value: kind for kind in Kind}
TIMES = "nodes without a usable time"


@dataclass
class GraphNode:
    """One node of a graph; times are None where the file has none."""

    number: int
    name: str
    kind: Kind
    needs: list[int] = field(default_factory=list)
    start_ns: int | None = None
    duration_ns: int | None = None
    bytes: int | None = None
    peer: str | None = None
    on_cpu: bool = True


@dataclass
class Schedule:
    """Start of every node, and how it was found."""

    start_ns: dict[int, int]
    computed: bool
    in_circles: int


def schedule(nodes: list[GraphNode]) -> Schedule:
    """When each node starts; nodes that depend on each other in a circle start when nothing else is left."""
    if nodes and all(node.start_ns is not None for node in nodes):
        return Schedule({node.number: node.start_ns or 0 for node in nodes}, False, 0)
    by_number = {node.number: node for node in nodes}
    waiting = {node.number: 0 for node in nodes}
    children: dict[int, list[int]] = {}
    for node in nodes:
        for other in {other for other in node.needs if other in by_number and other != node.number}:
            children.setdefault(other, []).append(node.number)
            waiting[node.number] += 1
    earliest = dict.fromkeys(by_number, 0)
    ready = [(0, number) for number, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    starts: dict[int, int] = {}
    latest = 0
    while ready:
        at_ns, number = heapq.heappop(ready)
        starts[number] = at_ns
        end_ns = min(at_ns + (by_number[number].duration_ns or 0), _LATEST_NS)
        latest = max(latest, end_ns)
        for child in children.get(number, []):
            earliest[child] = max(earliest[child], end_ns)
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, (earliest[child], child))
    circles = [number for number in by_number if number not in starts]
    starts.update(dict.fromkeys(circles, latest))
    return Schedule(starts, True, len(circles))


_LATEST_NS = 1 << 61


def add_graph(nodes: list[GraphNode], rank: int, rows: EventRows) -> Schedule:
    """Add a row for every node of one rank's graph; returns how their starts were found.

    Files that vsketchdlc wrote say step and kind in the node's name (``step3.allreduce.1``).
    """
    plan = schedule(nodes)
    counts: dict[int | None, int] = {}
    for node in sorted(nodes, key=lambda node: plan.start_ns[node.number]):
        start_ns = plan.start_ns[node.number]
        step, kind = named(node)
        bucket = None
        if kind in _DATA:
            bucket = counts.get(step, 0)
            counts[step] = bucket + 1
        rows.add(
            kind,
            start_ns,
            start_ns + (node.duration_ns or 0),
            process=rank,
            track=_track(kind, node),
            step=step,
            rank=rank,
            layer=node.name if kind is Kind.OPERATOR else None,
            bucket=bucket,
            bytes_=node.bytes,
            peer=node.peer,
        )
    return plan


_DATA = {Kind.ALLREDUCE, Kind.BROADCAST, Kind.ALLGATHER, Kind.ALLTOALL, Kind.REDUCESCATTER}


def named(node: GraphNode) -> tuple[int | None, Kind]:
    """Step and kind from a name such as ``step3.allreduce.1``, else what the node's type says."""
    found = _STEP.match(node.name)
    if found is None or found[2] not in _KINDS:
        return None, node.kind
    step = int(found[1])
    return (step if -(1 << 31) <= step < 1 << 31 else None), _KINDS[found[2]]


def _track(kind: Kind, node: GraphNode) -> str:
    if kind in (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE):
        return "step"
    if kind is Kind.OPERATOR:
        return "cpu" if node.on_cpu else "gpu"
    return "communication"


def graph_notes(plans: Iterable[Schedule], nodes: Iterable[GraphNode]) -> list[str]:
    """Sentences on what was assumed to lay graphs out in time."""
    plans = list(plans)
    notes = []
    if any(plan.computed for plan in plans):
        notes.append(
            "assumed: a node starts when all that it depends on has ended, as the file has no start times"
        )
    without = sum(node.duration_ns is None for node in nodes)
    if without:
        notes.append(f"{without:,} nodes have no duration in the file: they last no time")
    circles = sum(plan.in_circles for plan in plans)
    if circles:
        notes.append(f"repaired: {circles:,} nodes that depend on each other in a circle put at the end")
    return notes
