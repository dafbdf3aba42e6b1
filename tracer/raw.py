"""What the ranks left behind: reading the folders and logs of ``tracer/native/vsketch.h``.

A recording is a folder with one folder a process in it. Everything is read as far as it was written: a log
ends at its first empty record, a line that was cut short ends its file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError

RECORD = np.dtype(
    [("t", "<u8"), ("dur", "<u4"), ("kind", "u1"), ("flags", "u1"), ("a", "<u2"), ("b", "<u8"), ("c", "<u8")]
)
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("stopped", "<u4"),
        ("lost", "<u8"),
        ("start_monotonic_ns", "<u8"),
        ("start_wall_ns", "<u8"),
        ("thread", "S16"),
    ]
)
VERSION = 1
STOPPED_BY_SIZE, STOPPED_BY_DISK = 1, 2

# enum vsk_kind
PUSH, READY, DONE, MPI, COMM, MARK = 1, 2, 3, 4, 5, 6
THREAD_CPU, THREAD_RUN, PROCESS_CPU, HOST_CPU = 7, 8, 9, 10
CONN, SEND, RECV, TCP_INFO = 11, 12, 13, 14
MESSAGE, META, LANE = 15, 16, 17
# enum vsk_op
OPERATIONS = ("other", "allreduce", "broadcast", "allgather", "alltoall", "reducescatter")
# enum vsk_call
ALLREDUCE, BCAST, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, REDUCE_SCATTER, BARRIER, GATHER, GATHERV = (
    range(10)
)
# enum vsk_mark
FORWARD_BEGIN, BACKWARD_CALL, FORWARD_END, BACKWARD_END = 1, 2, 3, 4
STEP_CALL, UPDATE_CALL, UPDATE_RETURN, UPDATE_END = 5, 6, 7, 8
FLAG_LONG, FLAG_IN_PLACE, FLAG_MIDDLE, FLAG_END, FLAG_SENT = 1, 2, 4, 8, 16

Records = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RawLog:
    """One thread's log: its records in the order they were written."""

    tid: int
    thread: str
    records: Records
    lost: int
    stopped: int

    @property
    def start_ns(self) -> Integers:
        """Start of every record, ns."""
        return self.records["t"].astype(np.int64)

    @property
    def end_ns(self) -> Integers:
        """End of every record, ns."""
        duration = self.records["dur"].astype(np.int64)
        long = (self.records["flags"] & FLAG_LONG) > 0
        ends: Integers = self.start_ns + np.where(long, duration << 10, duration)
        return ends


@dataclass(frozen=True)
class RawProcess:
    """One process that recorded something, as its folder describes it."""

    folder: Path
    identity: dict[str, str]
    peers: dict[int, tuple[str, str]]
    entries: list[dict[str, Any]]
    logs: list[RawLog] = field(repr=False)

    @property
    def host(self) -> str:
        """Name of its host."""
        return self.identity.get("host", "unknown")

    @property
    def pid(self) -> int:
        """Process number on its host."""
        return int(self.identity.get("pid", 0))

    @property
    def rank(self) -> int | None:
        """Its rank in the job, None when it never joined one."""
        return int(self.identity["rank"]) if "rank" in self.identity else None

    @property
    def size(self) -> int:
        """Ranks in the job as this process knows it."""
        return int(self.identity.get("size", 1))

    @property
    def lost(self) -> int:
        """Events that were dropped."""
        return sum(log.lost for log in self.logs)


def read_recording(folder: Path) -> list[RawProcess]:
    """All processes of the recording in `folder` that recorded something, ordered by rank, then pid.

    Where one rank left several folders (a script that launched its job twice), the latest job counts.
    """
    found = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else []:
        if (place / "identity").is_file():
            process = read_process(place)
            if any(len(log.records) for log in process.logs):
                found.append(process)
    latest: dict[object, RawProcess] = {}
    for process in sorted(found, key=_start_ns):
        latest[process.folder if process.rank is None else process.rank] = process
    return sorted(latest.values(), key=lambda p: (p.rank is None, p.rank or 0, p.pid))


def _start_ns(process: RawProcess) -> int:
    return (
        int(process.folder.name.rpartition(".")[2]) if process.folder.name.rpartition(".")[2].isdigit() else 0
    )


def read_process(folder: Path) -> RawProcess:
    """The process that wrote `folder`."""
    identity: dict[str, str] = {}
    peers: dict[int, tuple[str, str]] = {}
    for line in (folder / "identity").read_text(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key == "peer":
            rank, host, place = value.split(" ", 2)
            peers[int(rank)] = (host, place)
        else:
            identity[key] = value
    logs = [log for log in map(read_log, sorted(folder.glob("*.log"))) if log is not None]
    return RawProcess(folder, identity, peers, _read_entries(folder / "hook.jsonl"), logs)


def _read_entries(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    if not path.exists():
        return entries
    for line in path.read_text(errors="replace").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            break  # cut short when its process was killed
    return entries


def read_log(path: Path) -> RawLog | None:
    """One thread's log, or None when its process ended before the header was written.

    Raises UserError when it was written by another version.
    """
    if path.stat().st_size < HEADER.itemsize:
        return None
    header = np.fromfile(path, dtype=HEADER, count=1)[0]
    if header["magic"] != b"VSKLOG1":
        return None
    if header["version"] != VERSION or header["record_bytes"] != RECORD.itemsize:
        raise UserError(
            f"{path} was recorded by another version of vsketchdlc; use the same one on all hosts"
        )
    records = np.fromfile(path, dtype=RECORD, offset=int(header["header_bytes"]))
    empty = np.flatnonzero(records["kind"] == 0)
    if len(empty):
        records = records[: empty[0]]
    thread = bytes(header["thread"]).decode(errors="replace")
    return RawLog(int(header["tid"]), thread, records, int(header["lost"]), int(header["stopped"]))
