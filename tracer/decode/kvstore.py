"""Rows of MXNet's KVStore: four stamps of every request, from worker and server both.

A worker's request and the server's answer carry the same timestamp, and travel over two connections. Of each request
there are the first and last byte at the worker (sent), at the server (received, then answered), and at the worker
again (received). The time in the server is a difference of two stamps of the server, the whole trip of two of the
worker: queue and transfer are told apart without equal clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..schema import Kind
from ..trace import TensorInfo
from .calls import step_at
from .flows import Flows
from .names import Names, layer_of
from .processes import Decoded
from .pslite import Message, key_and_server, messages_of
from .rows import KVSTORE, NULL, SERVER_PEER, Rows, Tensors, rows
from .tcp import Pair

_ITEM_BYTES = {"float16": 2, "float32": 4, "float64": 8, "uint8": 1, "int8": 1, "int32": 4, "int64": 8}


@dataclass
class Trip:
    """One request: its messages at both ends, as far as they were recorded."""

    worker: int | None
    server: int | None
    asked: Message | None = None  # at the worker, sent
    arrived: Message | None = None  # at the server, received
    answered: Message | None = None  # at the server, sent
    returned: Message | None = None  # at the worker, received
    step: int = -1

    def of(self) -> Message | None:
        """The request itself, from whichever end saw it: it has the key."""
        return self.asked or self.arrived


def kv_tensors(names: Names) -> list[TensorInfo]:
    """The parameters of a KVStore job; a trainer pushes each under its index."""
    found = []
    for parameter in names.parameters:
        elements = int(np.prod(parameter["shape"], dtype=np.int64))
        found.append(
            TensorInfo(
                name=f"kvstore.{parameter['index']}",
                parameter=parameter["name"],
                layer=layer_of(parameter["name"]),
                bytes=elements * _ITEM_BYTES.get(parameter["dtype"], 4),
                dtype=parameter["dtype"],
                index=parameter["index"],
            )
        )
    return found


def kv_rows(decoded: list[Decoded], matched: list[Pair], tensors: Tensors, flows: Flows) -> list[list[Rows]]:
    """Rows of every process, in the order of `decoded`."""
    made: list[list[Rows]] = [[] for _ in decoded]
    seen = [messages_of(one.process) for one in decoded]
    if not any(seen):
        return made
    count = max(int(one.process.identity.get("servers", 1)) for one in decoded)
    other = _other_ends(matched)
    trips = _trips(decoded, seen, other)
    _number_steps(list(trips.values()), decoded)
    for key, trip in trips.items():
        for place, part in _rows_of(trip, key[2], decoded, count, tensors, flows):
            made[place].append(part)
    for place, messages in enumerate(seen):
        control = [message for message in messages if message.control]
        if control:
            made[place].append(_control_rows(decoded[place], control))
    return made


def _other_ends(matched: list[Pair]) -> dict[tuple[int, int], int]:
    """Process at the other end of a (process, connection)."""
    ends = {}
    for pair in matched:
        ends[pair.one] = pair.other[0]
        ends[pair.other] = pair.one[0]
    return ends


def _trips(
    decoded: list[Decoded], seen: list[list[Message]], other: dict[tuple[int, int], int]
) -> dict[tuple[int, int, int, tuple[int, int]], Trip]:
    """Requests by worker, server, timestamp and customer. Ends that were not recorded have place -1."""
    trips: dict[tuple[int, int, int, tuple[int, int]], Trip] = {}
    for place, messages in enumerate(seen):
        worker = decoded[place].process.identity.get("role", "worker") == "worker"
        for message in messages:
            if message.control:
                continue
            there = other.get((place, message.connection), -1)
            ends = (place, there) if worker else (there, place)
            key = (*ends, message.timestamp, message.customer)
            known = [None if end < 0 else end for end in ends]
            trip = trips.setdefault(key, Trip(known[0], known[1]))
            slot = {
                (True, True): "asked",
                (True, False): "returned",
                (False, False): "arrived",
                (False, True): "answered",
            }[worker, message.sent]
            setattr(trip, slot, message)
    return trips


def _number_steps(trips: list[Trip], decoded: list[Decoded]) -> None:
    """Steps of the requests: a worker asks for a key once a step, so its nth request belongs to the nth step.

    Times alone would be off by one where a marker waited for a core. They say which step the first request is of,
    by majority; where the numbers do not run on together (``--every``), they decide alone.
    """
    groups: dict[tuple[int, int, bool, bool, int | None], list[Trip]] = {}
    for trip in trips:
        if trip.worker is not None and trip.asked is not None:
            asked = trip.asked
            groups.setdefault((trip.worker, asked.key, asked.push, asked.pull, trip.server), []).append(trip)
    for (worker, *_), group in groups.items():
        group.sort(key=_asked_ns)
        by_time = step_at(decoded[worker], np.array([_asked_ns(trip) for trip in group], dtype=np.int64))
        ahead, votes = np.unique(by_time - np.arange(len(group)), return_counts=True)
        steps = by_time
        if ahead[-1] - ahead[0] <= 2:
            steps = np.arange(len(group)) + ahead[np.argmax(votes)]
        for trip, step in zip(group, steps.tolist(), strict=True):
            trip.step = max(step, -1)


def _asked_ns(trip: Trip) -> int:
    return 0 if trip.asked is None else trip.asked.first_ns


def _rows_of(
    trip: Trip,
    timestamp: int,
    decoded: list[Decoded],
    count: int,
    tensors: Tensors,
    flows: Flows,
) -> list[tuple[int, Rows]]:
    request = trip.of()
    if request is None:
        return []
    key, server = key_and_server(request.key, count)
    tensor = tensors.number(TensorInfo(f"kvstore.{key}", None, None, request.bytes, "float32", key))
    rank = NULL if trip.worker is None else decoded[trip.worker].rank
    flow = flows.number(f"kvstore {'-' if rank in (None, NULL) else rank}>server {server}")
    made: list[tuple[int, Rows]] = []

    def add(place: int | None, kind: Kind, start: int, end: int, size: int, *, worker: bool) -> None:
        if place is None:
            return
        peer = SERVER_PEER + server if worker else (NULL if rank is None else rank)
        one = rows(
            kind,
            KVSTORE,
            np.array([start], dtype=np.int64),
            np.array([end], dtype=np.int64),
            step=trip.step,
            tensor=tensor,
            bucket=timestamp,
            bytes_=size,
            peer=peer,
            flow=flow,
        )
        made.append((place, one))

    asked, returned, arrived, answered = trip.asked, trip.returned, trip.arrived, trip.answered
    if asked and returned:
        for wanted, kind, size in (
            (request.push, Kind.KV_PUSH, asked.bytes),
            (request.pull or not request.push, Kind.KV_PULL, returned.bytes),
        ):
            if wanted:
                add(trip.worker, kind, asked.first_ns, returned.last_ns, size, worker=True)
    if asked:
        add(trip.worker, Kind.KV_REQUEST, asked.first_ns, asked.last_ns, asked.bytes, worker=True)
    if returned:
        add(trip.worker, Kind.KV_RESPONSE, returned.first_ns, returned.last_ns, returned.bytes, worker=True)
    if arrived:
        add(trip.server, Kind.KV_REQUEST, arrived.first_ns, arrived.last_ns, arrived.bytes, worker=False)
    if arrived and answered:
        add(trip.server, Kind.KV_QUEUE, arrived.last_ns, answered.first_ns, arrived.bytes, worker=False)
    if answered:
        add(trip.server, Kind.KV_RESPONSE, answered.first_ns, answered.last_ns, answered.bytes, worker=False)
    return made


def _control_rows(one: Decoded, messages: list[Message]) -> Rows:
    """Scheduler traffic and commands: control, as Horovod's negotiation is."""

    def column(value: Callable[[Message], int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([value(message) for message in messages], dtype=np.int64)

    starts = column(lambda message: message.first_ns)
    return rows(
        Kind.NEGOTIATE,
        KVSTORE,
        starts,
        column(lambda message: message.last_ns),
        step=step_at(one, starts),
        bytes_=column(lambda message: message.bytes),
    )
