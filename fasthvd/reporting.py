"""What rank 0 tells `run`: that MPI was initialised, and at the end the counters (native/rank/report.h is the other side).

Rank 0 may be on any host, so it comes by TCP, proves a token, and sends one line of JSON a connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "FASTHVD_REPORT"
ADDRESSES_MAX = 12
_LENGTH_MAX = 4 << 20
_PATIENCE_S = 5.0
_SIOCGIFADDR = 0x8915


class Reports:
    """Listens while the user's command runs.

    `ranks`: sizes of the MPI jobs that were started, in order (several processes that think they are alone: [1, 1]).
    `counters`: what rank 0 of the last job sent at its end, or None.
    """

    def __init__(self) -> None:
        self.ranks: list[int] = []
        self.counters: dict[str, Any] | None = None
        self.started = threading.Event()
        self._token = secrets.token_hex(16)
        self._listener = _listen()
        self._thread = threading.Thread(target=self._serve, name="reports", daemon=True)

    @property
    def variable(self) -> str:
        """Value of FASTHVD_REPORT: who may be asked where."""
        port = self._listener.getsockname()[1]
        return f"{self._token}@{port}@{','.join(own_addresses()[:ADDRESSES_MAX])}"

    def listen(self) -> None:
        """Start taking reports (after the command was started: nothing of this is in it)."""
        self._thread.start()

    def close(self) -> None:
        """Take no more. What rank 0 sent before it ended is in."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._thread.is_alive():
            self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError, ValueError):
                peer.settimeout(_PATIENCE_S)
                self._take(peer)

    def _take(self, peer: socket.socket) -> None:
        got = bytearray()
        while len(got) < _LENGTH_MAX:
            part = peer.recv(65536)
            if not part:
                break
            got += part
            if len(got) >= len(self._token) and not got.startswith(self._token.encode()):
                return  # a stranger
        head, _, body = got.decode().partition("\n")
        token, _, what = head.partition(" ")
        if not secrets.compare_digest(token, self._token):
            return
        content = json.loads(body)
        if what == "counters":
            self.counters = content
        elif what == "start":
            self.ranks.append(int(content["ranks"]))
            self.started.set()


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def own_addresses() -> list[str]:
    """This host's addresses, IPv4 first, without loopback unless there is nothing else."""
    found = [*_ipv4(), *_ipv6()]
    return [address for address in found if address not in ("127.0.0.1", "::1")] or found


def _ipv4() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield socket.inet_ntoa(answer[20:24])


def _ipv6() -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address, _, _, scope, *_ = line.split()
            if scope != "20":  # a link-local one means nothing elsewhere
                yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
