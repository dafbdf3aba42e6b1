"""Which TCP flows a host has, and whether two big ones shared one class of the per-flow cap.

The class counters alone cannot tell one flow of 8 MB from two of 4 MB, and a flow's sockets are gone when a
run ends. So while a lab with a cap runs, one thread asks the kernel (inet_diag) twice a second for the open
connections of each host and remembers how much each has sent.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from .shaping import flow_class

BIG_BYTES = 4 << 20
INTERVAL_S = 0.5

_SOCK_DIAG_BY_FAMILY = 20
_SOCK_DESTROY = 21
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP = 0x1, 0x4, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INET_DIAG_INFO = 2
# Everything but LISTEN (10), TIME_WAIT (6) and CLOSE (7): these carry no data.
_STATES = 0xFFF & ~(1 << 10 | 1 << 6 | 1 << 7)
_BYTES_ACKED_OFFSET = 120


@dataclass(frozen=True)
class Flow:
    """One direction of one TCP connection, as seen on the host that sends; `cookie` is the kernel's name for it."""

    host: str
    source: str
    source_port: int
    destination: str
    destination_port: int
    cookie: int

    @property
    def flow_class(self) -> int:
        """The number of the cap's class that carries it."""
        return flow_class(self.source_port, self.destination_port, self.destination)


@dataclass(frozen=True)
class Sighting:
    """How much a flow has sent and acknowledged, bytes, and when it was first and last seen (monotonic, s)."""

    sent_bytes: int
    first_s: float
    last_s: float

    def overlaps(self, other: Sighting) -> bool:
        """Whether both flows were open at the same time."""
        return self.first_s <= other.last_s and other.first_s <= self.last_s


@dataclass(frozen=True)
class Collision:
    """Flows of one host that shared one class, so one cap: the run they were in is void."""

    host: str
    flow_class: int
    flows: tuple[Flow, ...]

    def __str__(self) -> str:
        ports = ", ".join(
            f"{flow.source_port} to {flow.destination}:{flow.destination_port}" for flow in self.flows
        )
        return f"{self.host}: flows {ports} shared one cap; run it again"


def sent_bytes(diag: socket.socket, host: str) -> dict[Flow, int]:
    """Bytes sent and acknowledged so far on each open TCP connection (IPv4) that leaves `host`."""
    request = struct.pack(
        "BBBBI48x", socket.AF_INET, socket.IPPROTO_TCP, 1 << _INET_DIAG_INFO - 1, 0, _STATES
    )
    header = struct.pack("IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0)
    diag.send(header + request)
    found: dict[Flow, int] = {}
    while True:
        answer = diag.recv(1 << 20)
        place = 0
        while place + 16 <= len(answer):
            length, kind = struct.unpack_from("IH", answer, place)
            if kind == _NLMSG_DONE:
                return found
            if kind == _NLMSG_ERROR:
                code = -struct.unpack_from("i", answer, place + 16)[0]
                raise OSError(code, "inet_diag")
            message = answer[place + 16 : place + length]
            source_port, destination_port = struct.unpack_from(">HH", message, 4)
            source, destination = socket.inet_ntoa(message[8:12]), socket.inet_ntoa(message[24:28])
            if source != destination and not destination.startswith("127."):
                cookie = struct.unpack_from("Q", message, 44)[0]
                flow = Flow(host, source, source_port, destination, destination_port, cookie)
                found[flow] = _bytes_acked(message)
            place += length + 3 & ~3


def cut(diag: socket.socket, flow: Flow) -> None:
    """Abort a connection as a firewall would that forgot it: both ends get an error on their next call.

    Raises OSError where the kernel lacks INET_DIAG_DESTROY, FileNotFoundError when the connection has ended.
    """
    ports = struct.pack(">HH", flow.source_port, flow.destination_port)
    source = socket.inet_aton(flow.source).ljust(16, b"\0")
    destination = socket.inet_aton(flow.destination).ljust(16, b"\0")
    anyone = struct.pack("III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    identity = ports + source + destination + anyone
    request = struct.pack("BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _STATES) + identity
    header = struct.pack("IHHII", 16 + len(request), _SOCK_DESTROY, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
    diag.send(header + request)
    code = -struct.unpack_from("i", diag.recv(65536), 16)[0]
    if code:
        raise OSError(code, os.strerror(code))


def _bytes_acked(message: bytes) -> int:
    place = 72
    while place + 4 <= len(message):
        length, kind = struct.unpack_from("HH", message, place)
        if kind == _INET_DIAG_INFO and length >= 4 + _BYTES_ACKED_OFFSET + 8:
            return int(struct.unpack_from("Q", message, place + 4 + _BYTES_ACKED_OFFSET)[0])
        place += max(4, length + 3 & ~3)
    return 0


class FlowWatch:
    """Remembers the flows of all hosts; a thread looks twice a second between `start` and `stop`."""

    def __init__(self, diags: Mapping[str, socket.socket]) -> None:
        self._diags = diags
        self._seen: dict[Flow, Sighting] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="vsketchdlc-lab-flows", daemon=True)

    def start(self) -> None:
        """Begin looking; may be called again."""
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Stop looking; what was seen stays."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> dict[Flow, Sighting]:
        """Look once more now; returns every flow ever seen."""
        with self._lock:
            for host, diag in self._diags.items():
                now = time.monotonic()
                with contextlib.suppress(OSError):  # A dump that raced with a closing connection: next time.
                    for flow, sent in sent_bytes(diag, host).items():
                        before = self._seen.get(flow)
                        self._seen[flow] = Sighting(sent, before.first_s if before else now, now)
            return dict(self._seen)

    def cut(self, flow: Flow) -> None:
        """Abort an open connection. Raises OSError when the kernel cannot, or the connection has ended."""
        with self._lock:
            cut(self._diags[flow.host], flow)

    def forget(self) -> None:
        """Begin a new run."""
        with self._lock:
            self._seen.clear()

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self.look()


def collisions(seen: Mapping[Flow, Sighting], big_bytes: int = BIG_BYTES) -> list[Collision]:
    """Where flows that sent at least `big_bytes` each had the same class on the same host at the same time."""
    classes: dict[tuple[str, int], list[Flow]] = defaultdict(list)
    for flow, sighting in seen.items():
        if sighting.sent_bytes >= big_bytes:
            classes[flow.host, flow.flow_class].append(flow)
    found = []
    for (host, number), flows in sorted(classes.items()):
        crossed = {
            flow
            for one, other in itertools.combinations(flows, 2)
            if seen[one].overlaps(seen[other])
            for flow in (one, other)
        }
        if crossed:
            found.append(Collision(host, number, tuple(flow for flow in flows if flow in crossed)))
    return found
