"""What one rank did as a graph of work: which computation waits for which communication.

The rule of the graph is Horovod's: backward is cut where a gradient becomes ready; a bucket's collective needs the
piece of backward that its last gradient is ready after, and follows the collective before it (one thread does
them all); the update needs all of them; the next forward needs the update. A simulator that plays the graph with
another network therefore moves what would really move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..schema import Kind

COLLECTIVES = (
    Kind.ALLREDUCE,
    Kind.BROADCAST,
    Kind.ALLGATHER,
    Kind.ALLTOALL,
    Kind.REDUCESCATTER,
    Kind.BARRIER,
)
COPIES = (Kind.FUSE_IN, Kind.FUSE_OUT)
TRANSFERS = (Kind.KV_PUSH, Kind.KV_PULL)
WORK = (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE, *COLLECTIVES, *COPIES, *TRANSFERS)
"""What becomes a node."""

KINDS = (*WORK, Kind.READY, Kind.DONE)
"""All that a graph is made of: the last two say what a collective needs."""


class Event(NamedTuple):
    """What the graph needs of one row of the trace."""

    step: int | None
    kind: str
    tensor: str | None
    bucket: int | None
    bytes: int | None
    peer: str | None
    start_ns: int
    end_ns: int


@dataclass
class Node:
    """One piece of work; `needs` are the nodes whose result it uses, `follows` those it only comes after."""

    number: int
    name: str
    kind: str
    start_ns: int
    end_ns: int
    bytes: int | None = None
    peer: str | None = None
    needs: list[int] = field(default_factory=list)
    follows: list[int] = field(default_factory=list)


class WorkloadGraph:
    """Builds the nodes of one rank step by step; numbers count from 0 in the order of the nodes."""

    def __init__(self) -> None:
        self._count = 0
        self._updated: int | None = None
        self._last_transfer: int | None = None

    def step(self, events: Sequence[Event]) -> Iterator[Node]:
        """The nodes of one step, every node after those that it needs."""
        by_kind: dict[str, list[Event]] = {}
        for event in sorted(events, key=lambda event: (event.start_ns, event.end_ns)):
            by_kind.setdefault(event.kind, []).append(event)
        forward = by_kind.get(Kind.FORWARD, [])[:1]
        last = self._updated
        for event in forward:
            node = self._node(event, [last])
            last = node.number
            yield node
        pieces = list(self._backward(by_kind, last))
        yield from pieces
        last = pieces[-1].number if pieces else last
        ready = {event.tensor: event.end_ns for event in by_kind.get(Kind.READY, [])}
        ends: list[int] = []
        buckets = _ready_of_buckets(by_kind.get(Kind.DONE, []), ready)
        work = [event for kind in (*COLLECTIVES, *COPIES, *TRANSFERS) for event in by_kind.get(kind, [])]
        for event in sorted(work, key=lambda event: (event.start_ns, event.end_ns)):
            at = ready.get(event.tensor) if event.bucket is None else buckets.get(event.bucket)
            source = _piece_ready_at(pieces, at)
            node = self._node(event, [last if source is None and not pieces else source])
            if self._last_transfer is not None:
                node.follows.append(self._last_transfer)
            self._last_transfer = node.number
            ends.append(node.number)
            yield node
        for event in by_kind.get(Kind.UPDATE, [])[:1]:
            node = self._node(event, [last, *ends])
            self._updated = node.number
            yield node
        if not by_kind.get(Kind.UPDATE):
            self._updated = ends[-1] if ends else last

    def _backward(self, by_kind: dict[str, list[Event]], last: int | None) -> Iterator[Node]:
        for event in by_kind.get(Kind.BACKWARD, [])[:1]:
            cuts = sorted(
                {
                    one.end_ns
                    for one in by_kind.get(Kind.READY, [])
                    if event.start_ns < one.end_ns < event.end_ns
                }
            )
            start = event.start_ns
            for number, end in enumerate([*cuts, event.end_ns]):
                name = f"{event.kind}.{number}" if cuts else event.kind
                node = self._node(event._replace(start_ns=start, end_ns=end), [last], name)
                start, last = end, node.number
                yield node

    def _node(self, event: Event, needs: Iterable[int | None], name: str | None = None) -> Node:
        label = name or ".".join(
            str(part) for part in (event.kind, event.tensor, event.bucket) if part is not None
        )
        title = label if event.step is None else f"step{event.step}.{label}"
        known = sorted({number for number in needs if number is not None})
        node = Node(
            self._count, title, event.kind, event.start_ns, event.end_ns, event.bytes, event.peer, known
        )
        self._count += 1
        return node


def _ready_of_buckets(done: Iterable[Event], ready: dict[str | None, int]) -> dict[int, int]:
    """When the last gradient of each bucket was ready."""
    answer: dict[int, int] = {}
    for event in done:
        if event.bucket is not None and event.tensor in ready:
            answer[event.bucket] = max(answer.get(event.bucket, 0), ready[event.tensor])
    return answer


def _piece_ready_at(pieces: Sequence[Node], time_ns: int | None) -> int | None:
    """The piece of backward after which something that was ready at `time_ns` is there."""
    if time_ns is None:
        return pieces[-1].number if pieces else None
    for piece in pieces:
        if piece.end_ns >= time_ns:
            return piece.number
    return pieces[-1].number if pieces else None
