"""TCP traffic of one process: connections, calls with their place in the stream, the kernel's samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import raw
from ..raw import RawProcess
from .rows import Integers


@dataclass(frozen=True)
class Connection:
    """One TCP connection as one end sees it. `middle`: bytes had gone through before counting began."""

    own: str
    peer: str
    library: str
    middle: bool


@dataclass
class Traffic:
    """Calls that moved bytes, and TCP_INFO samples, of one process; times in ns on its host's clock.

    `offset` is the position in the stream of the call's direction before the call.
    """

    connections: dict[int, Connection]
    connection: Integers
    send: Integers  # 1 a send, 0 a receive
    offset: Integers
    bytes: Integers
    start_ns: Integers
    end_ns: Integers
    info_connection: Integers
    info_ns: Integers
    rtt_us: Integers
    window_segments: Integers
    retransmits: Integers
    delivery_bytes_per_s: Integers

    def of(self, connection: int, *, send: bool) -> Integers:
        """Places of the calls of one direction of `connection`, in stream order."""
        chosen = np.flatnonzero((self.connection == connection) & (self.send == int(send)))
        ordered: Integers = chosen[np.argsort(self.offset[chosen], kind="stable")]
        return ordered


def decode_traffic(process: RawProcess) -> Traffic:
    """The TCP records of `process`."""
    parts = [log for log in process.logs if len(log.records)]
    everything = np.concatenate([log.records for log in parts]) if parts else np.zeros(0, dtype=raw.RECORD)
    ends = np.concatenate([log.end_ns for log in parts]) if parts else np.zeros(0, dtype=np.int64)
    calls = np.flatnonzero((everything["kind"] == raw.SEND) | (everything["kind"] == raw.RECV))
    of_calls = everything[calls]
    info = everything[everything["kind"] == raw.TCP_INFO]
    return Traffic(
        connections=_connections(everything[everything["kind"] == raw.CONN]),
        connection=of_calls["a"].astype(np.int64),
        send=(of_calls["kind"] == raw.SEND).astype(np.int64),
        offset=of_calls["b"].astype(np.int64),
        bytes=of_calls["c"].astype(np.int64),
        start_ns=of_calls["t"].astype(np.int64),
        end_ns=ends[calls],
        info_connection=info["a"].astype(np.int64),
        info_ns=info["t"].astype(np.int64),
        rtt_us=(info["b"] & 0xFFFFFFFF).astype(np.int64),
        window_segments=(info["b"] >> 32).astype(np.int64),
        retransmits=info["dur"].astype(np.int64),
        delivery_bytes_per_s=info["c"].astype(np.int64),
    )


def _connections(records: raw.Records) -> dict[int, Connection]:
    found: dict[int, Connection] = {}
    for number in np.unique(records["a"]).tolist():
        parts = records[records["a"] == number]
        parts = parts[np.argsort(parts["c"], kind="stable")]
        words = parts["b"].tobytes().rstrip(b"\0").decode(errors="replace").split(" ")
        if len(words) == 3 and bool(parts["flags"][-1] & raw.FLAG_END):
            middle = bool((parts["flags"] & raw.FLAG_MIDDLE).any())
            found[int(number)] = Connection(words[0], words[1], words[2], middle)
    return found


@dataclass(frozen=True)
class Pair:
    """Both ends of one connection: (place of the process, connection number) of each."""

    one: tuple[int, int]
    other: tuple[int, int]


def pairs(processes: list[RawProcess], traffic: list[Traffic]) -> Iterator[Pair]:
    """Connections of which both ends were recorded. Loopback addresses only match within one host."""
    waiting: dict[tuple[str, str, str], tuple[int, int]] = {}
    for place, (process, data) in enumerate(zip(processes, traffic, strict=True)):
        for number, connection in data.connections.items():
            local = connection.own.startswith(("127.", "[::1]"))
            scope = process.host if local else ""
            other = waiting.pop((scope, connection.peer, connection.own), None)
            if other is None:
                waiting[scope, connection.own, connection.peer] = (place, number)
            else:
                yield Pair(other, (place, number))


@dataclass(frozen=True)
class Messages:
    """Sends whose first byte's arrival is known: start of the send, end of the call that received that byte."""

    sent_ns: Integers
    received_ns: Integers


def messages(sender: Traffic, sends: Integers, receiver: Traffic, receives: Integers) -> Messages:
    """Match the calls of one direction by stream offset; places in stream order."""
    ends = receiver.offset[receives] + receiver.bytes[receives]
    place = np.searchsorted(ends, sender.offset[sends], side="right")
    found = place < len(receives)
    found[found] &= (
        receiver.offset[receives[place[found]]] <= sender.offset[sends[found]]
    )  # not a lost stretch
    return Messages(sender.start_ns[sends[found]], receiver.end_ns[receives[place[found]]])
