"""What is drawn of a trace, in no format yet: processes, tracks, nested slices, arrows between them, counters.

Every viewer gets the same picture. It is made lazily: DuckDB sorts the events, Python sees them in batches, so
a trace of ten million events needs little more memory here than one of ten thousand.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..schema import Kind
from ..trace import HostInfo, Trace, batches
from .arrows import ARGUMENTS, SLICES, define_arrows
from .lanes import Lanes, NestedLanes, SingleLanes
from .timeline import COUNTERS, Process, define_drawn, define_timeline

Integers = npt.NDArray[np.int64]

EXTRA_PID_BASE = 100_000
"""Processes without a rank (lanes, servers) are numbered from here; a rank's number is its pid."""


@dataclass(frozen=True, eq=False)
class Track:
    """One row of the picture, the same object for all its slices; `order` sorts the rows of a process."""

    pid: int
    tid: int
    name: str
    order: int


@dataclass(frozen=True)
class Slices:
    """Some slices of one process, a column for each of their facts; times are ns after the picture's base.

    `track` are places in `tracks`, the rows of this process known so far; no slice is shorter than 1 ns. `facts` has
    the columns name, kind and `arrows.ARGUMENTS`, and the arrows: numbers from 1 up. One leaves a slice (`arrow_out`,
    0 for none) at its end, when it is about something that was waited for, or at its start; others pass through its
    start (`arrows_through`) or end there (`arrows_in`), as texts of numbers with commas.
    """

    pid: int
    tracks: list[Track]
    track: Integers
    start_ns: Integers
    end_ns: Integers
    facts: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.track)

    @property
    def arrow_out_ns(self) -> Integers:
        """When an arrow leaves: a gradient is ready when its waiting ends, a send puts bytes out from its start."""
        waited = pc.equal(self.facts["kind"], Kind.READY.value).to_numpy(zero_copy_only=False)
        return np.where(waited, self.end_ns - 1, self.start_ns)


class CounterPoint(NamedTuple):
    """One value of a named series of one process, at `time_ns` after the picture's base."""

    pid: int
    name: str
    time_ns: int
    value: float


@dataclass(frozen=True)
class Selection:
    """Which part of a trace is drawn.

    ``steps`` are the first and the last one, None for all; ``sockets`` says whether single sends and receives
    are drawn; events shorter than ``shortest_ns`` are left out.
    """

    steps: tuple[int, int] | None = None
    sockets: bool = True
    shortest_ns: int = 0


@dataclass
class Picture:
    """A trace ready to be drawn; all its times count from `base_ns` (ns of the reference host's clock)."""

    connection: duckdb.DuckDBPyConnection
    processes: list[Process]
    base_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def select(self, selection: Selection) -> None:
        """Cut the picture to `selection` and set its base to the first thing that is left."""
        define_drawn(self.connection, selection.steps, selection.sockets, selection.shortest_ns)
        define_arrows(self.connection)
        sql = "select least((select min(t0) from drawn), (select min(t) from counted))"
        [(first,)] = self.connection.execute(sql).fetchall()
        self.base_ns = 0 if first is None else int(first)

    def is_empty(self) -> bool:
        """Whether no event is left to draw."""
        return not self.connection.execute("select 1 from drawn limit 1").fetchall()

    def drawn_pids(self) -> set[int]:
        """Processes that have an event or a counter value to draw."""
        rows = self.connection.execute("select pid from drawn union select pid from counted").fetchall()
        return {pid for (pid,) in rows}

    def slices(self) -> Iterator[Slices]:
        """All slices: track after track, each in order of time, the enclosing one first."""
        rows = _Rows()
        for piece in batches(self.connection, SLICES):
            facts = piece.select(["name", "kind", *ARGUMENTS, "arrow_out", "arrows_in", "arrows_through"])
            pids = piece["pid"].to_numpy()
            starts, ends = piece["t0"].to_numpy(), piece["t1"].to_numpy()
            track = rows.place(piece, starts, ends)
            edges = [0, *(np.flatnonzero(np.diff(pids)) + 1).tolist(), len(pids)]
            for first, last in itertools.pairwise(edges):
                some = slice(first, last)
                pid = int(pids[first])
                yield Slices(
                    pid,
                    rows.tracks[pid],
                    track[some],
                    starts[some] - self.base_ns,
                    ends[some] - self.base_ns,
                    facts.slice(first, last - first),
                )

    def counters(self, *, ahead: bool = False) -> Iterator[CounterPoint]:
        """All counter values, series after series, each in order of time; finite numbers only.

        A picture answers one question at a time; with `ahead` all values are taken (into some 50 bytes each)
        before this returns, so that they can be used beside `slices`.
        """
        pieces: Iterable[pa.RecordBatch] = batches(self.connection, COUNTERS)
        return self._points(list(pieces) if ahead else pieces)

    def _points(self, pieces: Iterable[pa.RecordBatch]) -> Iterator[CounterPoint]:
        for pid, name, time_ns, value in _rows(pieces):
            yield CounterPoint(pid, name, time_ns - self.base_ns, value)


class _Rows:
    """Gives each slice the row of its process on which it is drawn."""

    def __init__(self) -> None:
        self.tracks: dict[int, list[Track]] = {}
        self._place: tuple[int, str] | None = None
        self._lanes: Lanes = NestedLanes()
        self._first = 0  # of this label's rows among those of its process

    def place(self, piece: pa.RecordBatch, starts: Integers, ends: Integers) -> Integers:
        """For each slice of `piece` the place of its row in ``tracks[pid]``."""
        pids, labels = piece["pid"].to_numpy(), piece["label"].dictionary_encode().indices.to_numpy()
        changes = (np.flatnonzero((np.diff(pids) != 0) | (np.diff(labels) != 0)) + 1).tolist()
        placed = np.empty(len(pids), dtype=np.int64)
        for first, last in itertools.pairwise([0, *changes, len(pids)]):
            pid, label = int(pids[first]), piece["label"][first].as_py()
            tracks = self.tracks.setdefault(pid, [])
            if self._place != (pid, label):
                self._place, self._first = (pid, label), len(tracks)
                self._lanes = NestedLanes() if piece["nests"][first].as_py() else SingleLanes()
            numbers = self._lanes.place_all(starts[first:last].tolist(), ends[first:last].tolist())
            for number in range(len(tracks) - self._first, max(numbers) + 1):
                title = label if number == 0 else f"{label} ({number + 1})"
                order = piece["label_order"][first].as_py() * 1000 + min(number, 999)
                tracks.append(Track(pid, len(tracks) + 1, title, order))
            placed[first:last] = np.array(numbers) + self._first
        return placed


def _rows(pieces: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Rows of an answer as Python values; going through numpy is three times as fast as through Arrow's scalars."""
    for piece in pieces:
        columns = [column.to_numpy(zero_copy_only=False).tolist() for column in piece.columns]
        yield from zip(*columns, strict=True)


@contextlib.contextmanager
def open_picture(trace: Trace, hosts: Collection[str | None] | None = None) -> Iterator[Picture]:
    """The whole picture of `trace`, of all hosts or of `hosts`."""
    with trace.connect() as connection:
        processes = processes_of(connection, trace.meta.hosts)
        if hosts is not None:
            processes = [process for process in processes if process.host in hosts]
        parameters = {tensor.name: tensor.parameter for tensor in trace.meta.tensors if tensor.parameter}
        define_timeline(connection, processes, parameters)
        picture = Picture(connection, processes)
        picture.select(Selection())
        yield picture


def processes_of(connection: duckdb.DuckDBPyConnection, hosts: Iterable[HostInfo]) -> list[Process]:
    """Every process of the trace, ranks first by number, then lanes and servers, each with a pid of its own."""
    rows = connection.execute(
        """
        select rank, host, process, list(distinct lane) filter (lane is not null), bool_or(kind like 'kv_%')
        from events group by rank, host, process order by rank nulls last, host, process
        """
    ).fetchall()
    clocks = {host.name: host for host in hosts}
    found: list[Process] = []
    taken: set[int] = set()
    for rank, host, number, lanes, serves in rows:
        if rank is not None:
            name = f"rank {rank}"
        elif lanes and len(lanes) == 1:
            name = f"lane {lanes[0]}"
        else:
            name = f"{'server' if serves else 'process'} {(number or 0) & 0xFFFF_FFFF}"
        own = rank is not None and 0 <= rank < EXTRA_PID_BASE and rank not in taken
        pid = int(rank) if own else EXTRA_PID_BASE + len(found)
        taken.add(pid)
        title = f"{name} @ {host}" if host else name
        found.append(Process(pid, title, host, rank, number, clocks.get(host) or HostInfo(host or "")))
    return found
