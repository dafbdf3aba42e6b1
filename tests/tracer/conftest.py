"""Raw recordings written by hand, byte by byte as the native library writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vsketchdlc.tracer import raw

FLOAT, LONG_LONG, INT, BYTE, NO_TYPE = 17, 16, 14, 1, 31
SUM, BAND, NO_OP = 0, 5, 15


@dataclass
class LogWriter:
    """One thread's log; every method adds one record."""

    tid: int
    thread: str = "python"
    records: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)

    def add(self, kind: int, start: int, end: int, a: int = 0, b: int = 0, c: int = 0) -> None:
        flags, duration = 0, end - start
        if duration >= 2**32:
            flags, duration = raw.FLAG_LONG, duration >> 10
        mask = 2**64 - 1
        self.records.append((start, duration, kind, flags, a, b & mask, c & mask))

    def push(self, op: int, start: int, end: int, *, name: int, step: int, kind: int = 1) -> None:
        self.add(raw.PUSH, start, end, kind, op | name << 32, (step & 0xFFFFFFFF) << 32)

    def ready(self, op: int, start: int, end: int) -> None:
        self.add(raw.READY, start, end, 0, op)

    def done(self, op: int, at: int) -> None:
        self.add(raw.DONE, at, at, 0, op)

    def mpi(
        self,
        call: int,
        start: int,
        end: int,
        *,
        bytes_: int = 0,
        type_: int = FLOAT,
        op: int = NO_OP,
        number: int = 0,
    ) -> None:
        self.add(raw.MPI, start, end, call | type_ << 5 | op << 10, bytes_, number)

    def control(self, start: int, end: int, number: int = 0) -> None:
        self.mpi(raw.ALLREDUCE, start, end, bytes_=8, type_=LONG_LONG, op=BAND, number=number)

    def mark(self, mark: int, at: int, step: int) -> None:
        self.add(raw.MARK, at, at, mark, step)

    def write(self, path: Path, *, empty: int = 64) -> Path:
        header = np.zeros(1, dtype=raw.HEADER)
        header["magic"], header["version"], header["tid"] = b"VSKLOG1", raw.VERSION, self.tid
        header["header_bytes"], header["record_bytes"] = 4096, raw.RECORD.itemsize
        header["thread"] = self.thread.encode()
        body = np.array(self.records, dtype=raw.RECORD)
        with path.open("wb") as file:
            file.write(header.tobytes().ljust(4096, b"\0"))
            file.write(body.tobytes() + bytes(32 * empty))
        return path


@dataclass
class ProcessWriter:
    """One process's folder."""

    folder: Path
    host: str = "h0"
    pid: int = 100
    rank: int = 0
    size: int = 1
    entries: list[dict[str, Any]] = field(default_factory=list)
    logs: list[LogWriter] = field(default_factory=list)

    def log(self, thread: str = "python") -> LogWriter:
        self.logs.append(LogWriter(self.pid + len(self.logs), thread))
        return self.logs[-1]

    def gradient(self, number: int, parameter: str, nbytes: int, index: int = 0) -> None:
        tensor = {"bytes": nbytes, "dtype": "float32", "index": index, "parameter": parameter}
        self.entries.append(
            {"operation": "allreduce", "number": number, "name": str(index), "tensors": [tensor]}
        )

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"host={self.host}", f"pid={self.pid}", f"rank={self.rank}", f"size={self.size}", "cores=2"]
        (self.folder / "identity").write_text("\n".join(lines) + "\n")
        (self.folder / "hook.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        for place, log in enumerate(self.logs):
            log.write(self.folder / f"{place}.{log.tid}.log")
        return self.folder


@pytest.fixture
def recording(tmp_path: Path) -> Any:
    """Call it with host and rank to get a `ProcessWriter` below one recording folder."""
    base = tmp_path / "recording"

    def process(rank: int = 0, *, host: str = "h0", size: int = 1) -> ProcessWriter:
        return ProcessWriter(base / f"{host}.{100 + rank}.{rank}", host, 100 + rank, rank, size)

    process.folder = base  # type: ignore[attr-defined]
    return process
