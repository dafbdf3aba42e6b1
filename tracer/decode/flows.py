"""Rows and samples of TCP flows. A flow is one direction of one connection: ``sender>receiver``."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..schema import Kind
from .calls import step_at
from .processes import Decoded
from .rows import NULL, TCP, Integers, Rows, rows
from .tcp import Pair
from .threads import Sample


@dataclass
class Flows:
    """Names of flows, numbered, and the rank at the other end of each (place of process, connection)."""

    names: list[str] = field(default_factory=list)
    ranks: dict[tuple[int, int], int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Number of the flow called `name`, new or known."""
        known = self._numbers.get(name)
        if known is None:
            known = self._numbers[name] = len(self.names)
            self.names.append(name)
        return known


def flows_of(decoded: list[Decoded], matched: list[Pair]) -> Flows:
    """Who is at the other end, where both ends were recorded."""
    flows = Flows()
    for pair in matched:
        for end, other in ((pair.one, pair.other), (pair.other, pair.one)):
            rank = decoded[other[0]].rank
            if rank is not None:
                flows.ranks[end] = rank
    return flows


def libraries(decoded: list[Decoded]) -> dict[str, str]:
    """By the name of each flow: the library that sends it, or where only its receiver was recorded, receives it."""
    senders: dict[str, str] = {}
    receivers: dict[str, str] = {}
    for one in decoded:
        for connection in one.traffic.connections.values():
            senders[f"{connection.own}>{connection.peer}"] = connection.library
            receivers[f"{connection.peer}>{connection.own}"] = connection.library
    return receivers | senders


def socket_rows(place: int, one: Decoded, flows: Flows) -> list[Rows]:
    """socket_send and socket_recv of `one`, which is process number `place`."""
    traffic = one.traffic
    made = []
    for number, connection in traffic.connections.items():
        peer = flows.ranks.get((place, number), NULL)
        for send, kind in ((True, Kind.SOCKET_SEND), (False, Kind.SOCKET_RECV)):
            chosen = traffic.of(number, send=send)
            if not len(chosen):
                continue
            ends = (connection.own, connection.peer) if send else (connection.peer, connection.own)
            made.append(
                rows(
                    kind,
                    TCP,
                    traffic.start_ns[chosen],
                    traffic.end_ns[chosen],
                    step=step_at(one, traffic.start_ns[chosen]),
                    bytes_=traffic.bytes[chosen],
                    peer=peer,
                    flow=flows.number(">".join(ends)),
                    offset=traffic.offset[chosen],
                )
            )
    return made


def tcp_samples(one: Decoded) -> list[Sample]:
    """The kernel's view of each connection, as the sender of its flow saw it."""
    traffic = one.traffic
    samples: list[Sample] = []
    columns: list[tuple[str, Integers, float]] = [
        ("tcp_rtt_s", traffic.rtt_us, 1e-6),
        ("tcp_window_segments", traffic.window_segments, 1.0),
        ("tcp_retransmits", traffic.retransmits, 1.0),
        ("tcp_delivery_bits_per_s", traffic.delivery_bytes_per_s, 8.0),
    ]
    for number in np.unique(traffic.info_connection).tolist():
        connection = traffic.connections.get(number)
        if connection is None:
            continue
        chosen = np.flatnonzero(traffic.info_connection == number)
        subject = f"{connection.own}>{connection.peer}"
        stamps = traffic.info_ns[chosen].tolist()
        for name, values, unit in columns:
            samples += [
                Sample(t, subject, name, value * unit)
                for t, value in zip(stamps, values[chosen].tolist(), strict=True)
            ]
    return samples
