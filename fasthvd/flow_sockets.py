"""Move bytes over several TCP connections at once, and measure: plain sockets, one thread a direction of each.

Every connection begins with the probe's token, so that a stranger's is not taken for one. Connections are reset,
not drained, at the end: through a slow link the bytes still in the buffers would take their time.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

BLOCK_BYTES = 1 << 20
_PATIENCE_S = 10.0
_TOTAL_RETRANSMITS_AT = 100  # tcpi_total_retrans in struct tcp_info (linux/tcp.h)
_ROUND_TRIP_AT = 68  # tcpi_rtt, in us


@dataclass(frozen=True)
class Moved:
    """What one host moved in the window: payload received, retransmits of its own sends, CPU cores it took.

    ``address`` is the own end of its sending connections: it names the interface.
    """

    received_bits_per_s: float
    retransmits: int
    cpu_cores: float
    round_trip_s: float
    address: str


def listener() -> socket.socket:
    """A listening socket on every address of this host, IPv4 and IPv6 where there is one."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
    return socket.create_server(("", 0), backlog=64)


def connect_all(addresses: Sequence[str], port: int, token: str, flows: int) -> list[socket.socket]:
    """`flows` connections to the first of `addresses` that answers. Raises OSError with the last reason."""
    failure: OSError = OSError("no address to connect to")
    for address in addresses:
        opened: list[socket.socket] = []
        try:
            for _ in range(flows):
                opened.append(socket.create_connection((address, port), timeout=_PATIENCE_S))
                opened[-1].sendall(token.encode())
            return opened
        except OSError as error:
            failure = OSError(f"{address} port {port}: {error.strerror or error}")
            close_all(opened)
    raise failure


def accept_all(server: socket.socket, token: str, flows: int) -> list[socket.socket]:
    """The next `flows` connections that say `token`; others are closed. Raises OSError after a few seconds."""
    deadline = time.monotonic() + 2 * _PATIENCE_S
    accepted: list[socket.socket] = []
    while len(accepted) < flows:
        server.settimeout(max(0.01, deadline - time.monotonic()))
        connection, _ = server.accept()
        connection.settimeout(_PATIENCE_S)
        if hmac.compare_digest(_exactly(connection, len(token)), token.encode()):
            accepted.append(connection)
        else:
            connection.close()
    return accepted


def move(
    out: Sequence[socket.socket], into: Sequence[socket.socket], *, settle_s: float, seconds: float
) -> Moved:
    """Send as fast as possible on `out`, receive on `into`; what `into` got in the window after `settle_s`."""
    stop = threading.Event()
    counts = [0] * len(into)
    threads = [threading.Thread(target=_send, args=(one, stop), daemon=True) for one in out]
    threads += [
        threading.Thread(target=_receive, args=(one, stop, counts, place), daemon=True)
        for place, one in enumerate(into)
    ]
    for thread in threads:
        thread.start()
    time.sleep(settle_s)
    begin_s, begin_cpu_s, before = time.perf_counter(), time.process_time(), sum(counts)
    time.sleep(seconds)
    took_s = time.perf_counter() - begin_s
    cpu_cores = (time.process_time() - begin_cpu_s) / took_s
    bits = 8 * (sum(counts) - before)
    infos = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192) for one in out]
    address = out[0].getsockname()[0].removeprefix("::ffff:") if out else ""
    stop.set()
    close_all([*out, *into])
    for thread in threads:
        thread.join(_PATIENCE_S)
    retransmits = sum(struct.unpack_from("I", info, _TOTAL_RETRANSMITS_AT)[0] for info in infos)
    trips = [struct.unpack_from("I", info, _ROUND_TRIP_AT)[0] * 1e-6 for info in infos]
    return Moved(bits / took_s, retransmits, cpu_cores, max(trips, default=0.0), address)


def close_all(sockets: Sequence[socket.socket]) -> None:
    """Reset every connection: nothing is left to be sent or waited for."""
    for one in sockets:
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.shutdown(socket.SHUT_RDWR)  # wakes a thread that is in a call on it
        one.close()


def _send(connection: socket.socket, stop: threading.Event) -> None:
    block = bytes(BLOCK_BYTES)
    with contextlib.suppress(OSError):
        while not stop.is_set():
            connection.sendall(block)


def _receive(connection: socket.socket, stop: threading.Event, counts: list[int], place: int) -> None:
    block = bytearray(BLOCK_BYTES)
    with contextlib.suppress(OSError):
        while not stop.is_set():
            got = connection.recv_into(block)
            if got == 0:
                return
            counts[place] += got


def _exactly(connection: socket.socket, size: int) -> bytes:
    """The first `size` bytes, fewer from somebody who says less."""
    said = b""
    with contextlib.suppress(OSError):
        while len(said) < size and (more := connection.recv(size - len(said))):
            said += more
    return said
