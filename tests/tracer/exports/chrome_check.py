"""A strict reader of Chrome Trace Event JSON, written from the format's rules and not from our writer.

It refuses what a viewer would drop or draw wrongly: slices of one thread that overlap in part, arrows whose
points lie in no slice or run backwards, ids in quotes, numbers out of range, processes and threads without names.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

LARGEST_ID = 2**32 - 1


@dataclass
class Slice:
    pid: int
    tid: int
    start_ns: int
    end_ns: int
    name: str
    args: dict[str, Any]
    position: int


@dataclass
class Checked:
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    arrows: list[list[Slice]] = field(default_factory=list)
    counters: dict[tuple[int, str], list[tuple[int, float]]] = field(default_factory=dict)
    instants: list[str] = field(default_factory=list)
    metadata: dict[int, dict[str, Any]] = field(default_factory=dict)


def nanoseconds(value: Any) -> int:
    assert isinstance(value, int | Decimal) and not isinstance(value, bool), (
        f"a time must be a number, not {value!r}"
    )
    scaled = Decimal(value) * 1000
    assert scaled == int(scaled), f"{value} us has more than three decimals"
    assert 0 <= scaled < 2**53, f"{value} us does not fit a double"
    return int(scaled)


def check(path: Path) -> Checked:
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8")
    events = json.loads(
        text, parse_float=Decimal, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word))
    )
    assert isinstance(events, list)
    found = Checked()
    points = defaultdict(list)
    for position, event in enumerate(events):
        phase = event["ph"]
        for key in ("pid", "tid"):
            if key in event:
                assert type(event[key]) is int and 0 <= event[key] <= LARGEST_ID, event
        if phase == "M":
            _metadata(event, found)
        elif phase == "X":
            start, length = nanoseconds(event["ts"]), nanoseconds(event["dur"])
            assert length > 0, f"viewers lose arrows on slices without length: {event}"
            found.slices.append(
                Slice(
                    event["pid"],
                    event["tid"],
                    start,
                    start + length,
                    event["name"],
                    event.get("args", {}),
                    position,
                )
            )
        elif phase in "stf":
            assert type(event["id"]) is int and event["id"] > 0, f"ids must be integers: {event}"
            assert phase != "f" or event.get("bp") == "e", f"without bp it binds to the next slice: {event}"
            points[(event["cat"], event["name"], event["id"])].append(
                (phase, nanoseconds(event["ts"]), position, event)
            )
        elif phase == "C":
            for value in event["args"].values():
                assert isinstance(value, int | Decimal)
                found.counters.setdefault((event["pid"], event["name"]), []).append(
                    (nanoseconds(event["ts"]), float(value))
                )
        elif phase == "i":
            assert event["s"] == "g" or ("pid" in event and (event["s"] == "p" or "tid" in event)), event
            found.instants.append(event["name"])
        else:
            raise AssertionError(f"unknown phase: {event}")
    _named(found)
    _nested(found.slices)
    _joined(points, found)
    return found


def _metadata(event: dict[str, Any], found: Checked) -> None:
    if event["name"] == "process_name":
        assert event["pid"] not in found.processes, f"two names for one process: {event}"
        found.processes[event["pid"]] = event["args"]["name"]
        found.metadata[event["pid"]] = event["args"]
    elif event["name"] == "thread_name":
        key = (event["pid"], event["tid"])
        assert key not in found.threads, f"two names for one thread: {event}"
        found.threads[key] = event["args"]["name"]
    else:
        assert event["name"] in ("process_sort_index", "thread_sort_index"), (
            f"viewers do not know {event['name']}"
        )
        assert type(event["args"]["sort_index"]) is int


def _named(found: Checked) -> None:
    for piece in found.slices:
        assert piece.pid in found.processes, f"process {piece.pid} has no name"
        assert (piece.pid, piece.tid) in found.threads, f"thread {piece.tid} of {piece.pid} has no name"
        assert piece.name
    for pid, _ in found.counters:
        assert pid in found.processes
    for pid in found.processes:
        names = [name for (owner, _), name in found.threads.items() if owner == pid]
        assert len(names) == len(set(names)), f"two threads of {pid} have one name: {names}"


def _nested(slices: list[Slice]) -> None:
    threads = defaultdict(list)
    for piece in slices:
        threads[(piece.pid, piece.tid)].append(piece)
    for pieces in threads.values():
        open_pieces: list[Slice] = []
        for piece in sorted(pieces, key=lambda p: (p.start_ns, -p.end_ns)):
            while open_pieces and open_pieces[-1].end_ns <= piece.start_ns:
                open_pieces.pop()
            assert not open_pieces or piece.end_ns <= open_pieces[-1].end_ns, (
                f"{piece} overlaps {open_pieces[-1]} in part"
            )
            open_pieces.append(piece)
            assert len(open_pieces) <= 200, "deeper than viewers draw"


def _joined(points: dict[Any, list[Any]], found: Checked) -> None:
    threads = defaultdict(list)
    for piece in found.slices:
        threads[(piece.pid, piece.tid)].append(piece)
    for key, chain in points.items():
        chain.sort(key=lambda point: (point[1], "stf".index(point[0])))
        phases = "".join(point[0] for point in chain)
        assert set(phases[1:-1]) <= {"t"} and phases[0] == "s" and phases[-1] == "f", (
            f"arrow {key} reads {phases}"
        )
        assert [point[0] for point in sorted(chain, key=lambda point: "stf".index(point[0]))] == list(phases)
        joined = []
        for _, time_ns, _, event in chain:
            around = [
                piece
                for piece in threads[(event["pid"], event["tid"])]
                if piece.start_ns <= time_ns < piece.end_ns
            ]
            assert around, f"arrow point in no slice: {event}"
            joined.append(max(around, key=lambda piece: (piece.start_ns, -piece.end_ns, piece.position)))
        found.arrows.append(joined)
