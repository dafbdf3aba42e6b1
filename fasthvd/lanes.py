"""The lanes without MPI: sum arrays over processes of several hosts, with any means of meeting each other.

>>> group = Lanes(rank, size, FileRendezvous(folder, rank, size), aux=2)   # every process calls this
>>> group.allreduce(array)                                                 # in place, the same on every rank
>>> group.close()

A rendezvous is anything with ``gather(data: bytes) -> list[bytes]``: everybody's bytes in rank order. It is used
at the start, and for one vote of a few bytes after every allreduce.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from ..errors import UserError
from .settings import AUX_MAX, LIBRARY, require_native

CAUSE_BYTES = 256
# As in native/common/protocol.h.
TYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
OPERATIONS = ("sum", "min", "max", "prod")
_GATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)


class LanesFailed(RuntimeError):
    """The allreduce failed on every rank with the arrays untouched: do it another way. Says host, lane, cause."""


class LanesMismatch(RuntimeError):
    """The ranks did not call the same allreduce."""


class Rendezvous(Protocol):
    """How the processes of a group speak to each other beside the lanes."""

    def gather(self, data: bytes) -> list[bytes]:
        """Everybody's `data`, of the same length everywhere, in rank order."""
        ...


class Lanes:
    """A group of `size` processes with `aux` lanes per host below it.

    `host_id` other than "" makes processes of one machine different hosts (tests). Raises UserError when no lane
    could be started on every host, on all ranks alike.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        rendezvous: Rendezvous,
        *,
        aux: int,
        timeout_s: float = 60.0,
        host_id: str = "",
    ) -> None:
        require_native()
        self._library = _load()
        self._why = ctypes.create_string_buffer(CAUSE_BYTES)
        self._callback = _GATHER(_bridge(rendezvous, size))
        self._group = self._library.fasthvd_open(
            rank, size, aux, timeout_s, host_id.encode(), self._callback, None, self._why
        )
        if not self._group:
            raise UserError(f"no lanes: {self._why.value.decode(errors='replace')}")

    def allreduce(
        self, array: npt.NDArray[Any], op: str = "sum", out: npt.NDArray[Any] | None = None
    ) -> None:
        """`out` (default: `array` itself) = `array` combined over all ranks; contiguous, same dtype and size everywhere.

        Raises LanesFailed (arrays untouched, on all ranks), LanesMismatch, ConnectionError when the group is broken.
        """
        target = array if out is None else out
        if array.dtype.name not in TYPES or op not in OPERATIONS:
            raise UserError(
                f"lanes cannot do '{op}' of {array.dtype.name}: types {', '.join(TYPES)}, operations {', '.join(OPERATIONS)}"
            )
        if (
            not (array.flags.c_contiguous and target.flags.c_contiguous)
            or target.dtype != array.dtype
            or target.size != array.size
        ):
            raise UserError("lanes need contiguous arrays, and an 'out' of the same type and size")
        outcome = self._library.fasthvd_allreduce(
            self._group,
            array.ctypes.data,
            target.ctypes.data,
            array.size,
            TYPES.index(array.dtype.name),
            OPERATIONS.index(op),
            self._why,
        )
        if outcome != 0:
            kind = {1: LanesFailed, 2: LanesMismatch}.get(outcome, ConnectionError)
            raise kind(self._why.value.decode(errors="replace"))

    @property
    def count(self) -> int:
        """Lanes that work on every host now."""
        return int(self._library.fasthvd_lanes_of(self._group))

    @property
    def hosts(self) -> int:
        """Hosts of the group."""
        return int(self._library.fasthvd_hosts_of(self._group))

    def lane_pids(self) -> list[int]:
        """Process numbers of this host's lanes, on the rank that started them; elsewhere empty."""
        numbers = (int(self._library.fasthvd_lane_pid(self._group, lane)) for lane in range(AUX_MAX))
        return [number for number in numbers if number > 0]

    def limit(self, count: int) -> None:
        """Use the first `count` lanes only from now on; every rank calls it at the same point."""
        self._library.fasthvd_limit(self._group, count)

    def close(self) -> None:
        """End the lanes."""
        if self._group:
            self._library.fasthvd_close(self._group)
            self._group = None

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    library.fasthvd_open.restype = ctypes.c_void_p
    library.fasthvd_open.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_double,
        ctypes.c_char_p,
        _GATHER,
        ctypes.c_void_p,
        ctypes.c_char_p,
    ]
    library.fasthvd_allreduce.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_char_p,
    ]
    for name in ("fasthvd_lanes_of", "fasthvd_hosts_of", "fasthvd_close"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.fasthvd_lane_pid.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.fasthvd_limit.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def _bridge(rendezvous: Rendezvous, size: int) -> Callable[[int | None, int, int, int], int]:
    def gather(_: int | None, mine: int, length: int, into: int) -> int:
        try:
            parts = rendezvous.gather(ctypes.string_at(mine, length))
        except OSError:
            return 1
        whole = b"".join(parts)
        if len(parts) != size or len(whole) != size * length:
            return 1
        ctypes.memmove(into, whole, len(whole))
        return 0

    return gather


class FileRendezvous:
    """Meets in a folder that all processes see. Raises TimeoutError when somebody is missing for `timeout_s`."""

    def __init__(self, folder: Path | str, rank: int, size: int, timeout_s: float = 120.0) -> None:
        self._folder, self._rank, self._size, self._timeout_s = Path(folder), rank, size, timeout_s
        self._round = 0

    def gather(self, data: bytes) -> list[bytes]:
        """Everybody's bytes: each writes a file and reads the others'; a round's files go one round later."""
        own = self._path(self._round, self._rank)
        part = self._folder / f"{own.name}.part"
        part.write_bytes(data)
        part.replace(own)
        deadline = time.monotonic() + self._timeout_s
        found = [self._await(self._path(self._round, rank), deadline) for rank in range(self._size)]
        if self._round > 0:  # everybody is in this round, so nobody reads the one before any more
            self._path(self._round - 1, self._rank).unlink(missing_ok=True)
        self._round += 1
        return found

    def _path(self, number: int, rank: int) -> Path:
        return self._folder / f"round{number}.rank{rank}"

    @staticmethod
    def _await(path: Path, deadline: float) -> bytes:
        pause = 20e-6
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path.name} did not come") from None
                time.sleep(pause)
                pause = min(2 * pause, 1e-3)


class TcpRendezvous:
    """Meets at a TCP address: rank 0 listens there, the others connect. Trusted networks only.

    Raises TimeoutError or ConnectionError (both are OSError) when somebody is missing or gone.
    """

    def __init__(self, address: tuple[str, int], rank: int, size: int, timeout_s: float = 120.0) -> None:
        self._rank, self._size = rank, size
        self._peers: list[socket.socket] = []
        if rank == 0:
            with socket.create_server(address, backlog=size) as listener:
                listener.settimeout(timeout_s)
                arrived: dict[int, socket.socket] = {}
                while len(arrived) < size - 1:
                    peer, _ = listener.accept()
                    peer.settimeout(timeout_s)
                    arrived[struct.unpack("<I", _read(peer, 4))[0]] = peer
            self._peers = [arrived[number] for number in range(1, size)]
        else:
            self._peers = [_connect(address, time.monotonic() + timeout_s)]
            self._peers[0].settimeout(timeout_s)
            self._peers[0].sendall(struct.pack("<I", rank))
        for peer in self._peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def gather(self, data: bytes) -> list[bytes]:
        """Everybody's bytes, through rank 0."""
        if self._rank > 0:
            self._peers[0].sendall(data)
            whole = _read(self._peers[0], len(data) * self._size)
            return [whole[at : at + len(data)] for at in range(0, len(whole), len(data))]
        parts = [data, *(_read(peer, len(data)) for peer in self._peers)]
        whole = b"".join(parts)
        for peer in self._peers:
            peer.sendall(whole)
        return parts

    def close(self) -> None:
        """Leave."""
        for peer in self._peers:
            peer.close()


def _connect(address: tuple[str, int], deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address, timeout=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _read(peer: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        got = peer.recv(length - len(parts))
        if not got:
            raise ConnectionError("a rank is gone")
        parts += got
    return bytes(parts)
