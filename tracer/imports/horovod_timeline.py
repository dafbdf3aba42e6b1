"""Horovod's timeline (``HOROVOD_TIMELINE``, all versions) as a Trace.

Its processes are tensors, and only rank 0 writes. What becomes of its events:

1. ``NEGOTIATE_<OP>`` of a tensor → ``negotiate``. The marks inside, zero-length ``X`` named after a rank, say when
   that rank's request arrived → ``ready`` of that rank (a negotiation without a mark of rank 0 gives rank 0's
   ``ready`` at its begin). Durations of marks are ignored: some writers put garbage there.
2. ``MPI_ALLREDUCE``, ``NCCL_ALLREDUCE``, ``GLOO_BCAST`` ... → the collective. A fused response repeats its interval
   under every tensor: those that overlap are one bucket, with the sum of its tensors' bytes.
3. ``MEMCPY_IN/OUT_FUSION_BUFFER`` → ``fuse_in`` / ``fuse_out`` of the bucket.
4. The outer ``<OP>`` tells the tensor's bytes at its end → ``done``, from the collective's end to there.
5. Everything else (``QUEUE``, ``WAIT_FOR_DATA`` ...) → ``operator``. ``CYCLE_START`` → samples.

The timeline has no steps: the n-th time that a tensor is negotiated is step n (from 0). Times are microseconds,
since the job's start in newer files (which also say when that was) and of the host's uptime in older ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from ..schema import Kind
from ..trace import TraceMeta
from .damaged_json import Document
from .event_lists import BAD_TIMES, Interval, arguments_of, key_of, names_of, nested
from .event_rows import EventRows, Imported, tensor_infos, text, time_ns, whole

PROCESS = 0
HOROVOD, TENSORS = "horovod", "tensors"
GARBAGE_NS = 1_000_000
"""A mark of a rank lasts no time; one that claims more than this has a garbage duration."""

_MOST_RANKS = 1 << 20
_LARGEST_TENSOR = 1 << 50

_COLLECTIVE = re.compile(
    r"(MPI|NCCL|GLOO|CCL|ONECCL|DDL|MLSL|ADASUM)(_\w+?)??_(ALLREDUCE|ALLGATHERV?|BCAST|BROADCAST|ALLTOALLV?|REDUCESCATTER|BARRIER)$"
)
_KINDS = {
    "ALLREDUCE": Kind.ALLREDUCE,
    "ALLGATHER": Kind.ALLGATHER,
    "ALLGATHERV": Kind.ALLGATHER,
    "BCAST": Kind.BROADCAST,
    "BROADCAST": Kind.BROADCAST,
    "ALLTOALL": Kind.ALLTOALL,
    "ALLTOALLV": Kind.ALLTOALL,
    "REDUCESCATTER": Kind.REDUCESCATTER,
    "BARRIER": Kind.BARRIER,
}
_COPIES = {"MEMCPY_IN_FUSION_BUFFER": Kind.FUSE_IN, "MEMCPY_OUT_FUSION_BUFFER": Kind.FUSE_OUT}
_SIZES = {
    "uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip


def looks_like_horovod(document: Document) -> bool:
    """Whether the events are a Horovod timeline's."""
    for event in document.objects:
        name = event.get("name")
        if name == "CYCLE_START" or (isinstance(name, str) and name.startswith("NEGOTIATE_")):
            return True
        if "start_time_since_epoch_in_micros" in arguments_of(event):
            return True
    return False


@dataclass
class _Work:
    """A collective or a copy under one tensor, or of a whole bucket once those that overlap are joined."""

    kind: Kind
    start_ns: int
    end_ns: int
    step: int
    tensors: list[str]


def import_horovod(document: Document) -> Imported:
    """The Trace in a timeline's events; see the module for what becomes of them."""
    reader = _Reader(document)
    reader.read()
    return reader.imported()


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._events = [event for event in document.objects if "ph" in event]
        self._rows = EventRows()
        self._names = names_of(self._events, "process_name")
        self._begins = self._negotiation_begins()
        self._sizes: dict[str, int] = {}
        self._dtypes: dict[str, str] = {}
        self._learn_sizes()
        self._ranks = {0}
        self._garbage_marks = 0
        self._assumed_ready = 0

    def read(self) -> None:
        """Turn all events into rows."""
        marked = self._marks()
        work: list[_Work] = []
        outer: list[Interval] = []
        last_end: dict[tuple[str, int], int] = {}
        for interval in nested(self._events, self._rows):
            tensor, step = self._place(interval.row, interval.start_ns)
            kind = _COPIES.get(interval.name) or _collective(interval.name)
            if interval.name.startswith("NEGOTIATE_"):
                self._negotiation(interval, tensor, step, marked)
            elif kind is not None and interval.depth > 0:
                work.append(_Work(kind, interval.start_ns, interval.end_ns, step, [tensor]))
                last_end[tensor, step] = max(interval.end_ns, last_end.get((tensor, step), interval.end_ns))
            elif interval.depth == 0:
                outer.append(interval)
            else:
                self._add(Kind.OPERATOR, interval, step, TENSORS, tensor=tensor, layer=interval.name)
        bucket_of = self._buckets(_joined(work))
        for interval in outer:
            tensor, step = self._place(interval.row, interval.start_ns)
            ended_ns = last_end.get((tensor, step))
            if ended_ns is None or not interval.start_ns <= ended_ns <= interval.end_ns:
                self._add(Kind.OPERATOR, interval, step, TENSORS, tensor=tensor, layer=interval.name)
                continue
            done = Interval("", "", interval.row, ended_ns, interval.end_ns, 0)
            self._add(Kind.DONE, done, step, TENSORS, tensor=tensor, bucket=bucket_of.get((tensor, step)))

    def imported(self) -> Imported:
        """The rows with what is known of the run."""
        epoch_us = next(
            (
                whole(arguments_of(event).get("start_time_since_epoch_in_micros"), 1 << 60)
                for event in self._events
                if "start_time_since_epoch_in_micros" in arguments_of(event)
            ),
            None,
        )
        notes = [
            "assumed: the n-th negotiation of a tensor is step n, because a timeline has no steps; broadcasts are before step 0",
            "the file is of rank 0; other ranks only show when their requests reached it",
        ]
        if epoch_us is None:
            notes.append("times are the uptime of rank 0's host: they cannot be aligned with other hosts")
        if self._assumed_ready:
            notes.append(
                f"assumed: {self._assumed_ready:,} gradients without a mark of rank 0 were ready when negotiation began"
            )
        if self._garbage_marks:
            notes.append(f"repaired: {self._garbage_marks:,} marks with absurd durations taken as instants")
        meta = TraceMeta(
            source="imported:horovod-timeline",
            ranks=max(self._ranks) + 1,
            tensors=tensor_infos(self._gradients(), self._dtypes),
            settings={} if epoch_us is None else {"zero_is_us_since_epoch": epoch_us},
            notes=notes,
        )
        return Imported(self._rows, meta)

    def _gradients(self) -> dict[str, int]:
        """Sizes of the tensors that are not only broadcast."""
        broadcast = {
            self._names.get(pid)
            for pid, begins in self._begins.items()
            if all(is_broadcast for _, is_broadcast in begins)
        }
        return {name: size for name, size in self._sizes.items() if name not in broadcast}

    def _learn_sizes(self) -> None:
        """Sizes of tensors: they stand at the ends of the outer intervals."""
        for event in self._events:
            arguments = arguments_of(event)
            dtype, size = text(arguments.get("dtype")), _bytes(arguments)
            if size is not None and dtype is not None:
                tensor, _ = self._place(key_of(event.get("pid")), 0)
                self._sizes.setdefault(tensor, size)
                self._dtypes.setdefault(tensor, dtype)

    def _negotiation_begins(self) -> dict[Hashable, list[tuple[int, bool]]]:
        """By tensor: when its negotiations began, and whether they were of a broadcast."""
        begins: dict[Hashable, list[tuple[int, bool]]] = defaultdict(list)
        for event in self._events:
            name, at_ns = event.get("name"), time_ns(event.get("ts"))
            if event.get("ph") != "B" or not isinstance(name, str) or at_ns is None:
                continue
            if name.startswith("NEGOTIATE_"):
                begins[key_of(event.get("pid"))].append((at_ns, "BROADCAST" in name))
        for times in begins.values():
            times.sort()
        return begins

    def _place(self, row: Hashable, at_ns: int) -> tuple[str, int]:
        """Tensor and step of something that the file has under `row` at a time."""
        pid = row[0] if isinstance(row, tuple) else row
        begins = self._begins.get(pid, [])
        number = bisect_right(begins, (at_ns, True)) - 1
        before_training = number >= 0 and begins[number][1]
        return self._names.get(pid, f"tensor {pid}"), -1 if before_training else max(0, number)

    def _marks(self) -> set[tuple[str, int]]:
        """Ready rows from the marks of ranks; returns the (tensor, step) that have one of rank 0."""
        marked = set()
        cycles = 0
        for event in self._events:
            at_ns = time_ns(event.get("ts"))
            if event.get("name") == "CYCLE_START" and at_ns is not None:
                self._rows.sample(at_ns, PROCESS, HOROVOD, "cycle", float(cycles))
                cycles += 1
            rank = whole(event.get("name"), _MOST_RANKS) if event.get("ph") == "X" else None
            if rank is None:
                continue
            if at_ns is None:
                self._rows.dropped[BAD_TIMES] += 1
                continue
            self._garbage_marks += (time_ns(event.get("dur")) or 0) > GARBAGE_NS
            self._ranks.add(rank)
            tensor, step = self._place(key_of(event.get("pid")), at_ns)
            self._rows.add(
                Kind.READY,
                at_ns,
                at_ns,
                process=rank,
                track=TENSORS,
                step=step,
                rank=rank,
                tensor=tensor,
                bytes_=self._sizes.get(tensor),
            )
            if rank == 0:
                marked.add((tensor, step))
        return marked

    def _negotiation(self, interval: Interval, tensor: str, step: int, marked: set[tuple[str, int]]) -> None:
        self._add(Kind.NEGOTIATE, interval, step, TENSORS, tensor=tensor)
        if (tensor, step) not in marked:
            self._assumed_ready += 1
            begin = Interval("", "", interval.row, interval.start_ns, interval.start_ns, 0)
            self._add(Kind.READY, begin, step, TENSORS, tensor=tensor)

    def _buckets(self, joined: list[_Work]) -> dict[tuple[str, int], int]:
        """Rows of collectives and copies; returns the bucket of each (tensor, step)."""
        bucket_of: dict[tuple[str, int], int] = {}
        counts: dict[int, int] = defaultdict(int)
        for work in joined:
            if work.kind not in _COPIES.values():
                for tensor in work.tensors:
                    bucket_of[tensor, work.step] = counts[work.step]
                counts[work.step] += 1
        for work in joined:
            bucket = bucket_of.get((work.tensors[0], work.step))
            sizes = [self._sizes.get(tensor) for tensor in work.tensors]
            size = None if None in sizes else sum(size for size in sizes if size is not None)
            interval = Interval("", "", None, work.start_ns, work.end_ns, 0)
            self._add(work.kind, interval, work.step, HOROVOD, bucket=bucket, bytes_=size)
        return bucket_of

    def _add(
        self,
        kind: Kind,
        interval: Interval,
        step: int,
        track: str,
        *,
        tensor: str | None = None,
        layer: str | None = None,
        bucket: int | None = None,
        bytes_: int | None = None,
    ) -> None:
        size = self._sizes.get(tensor) if tensor is not None else bytes_
        self._rows.add(
            kind,
            interval.start_ns,
            interval.end_ns,
            process=PROCESS,
            track=track,
            step=step,
            rank=0,
            tensor=tensor,
            layer=layer,
            bucket=bucket,
            bytes_=size,
        )


def _collective(name: str) -> Kind | None:
    found = _COLLECTIVE.match(name)
    return None if found is None else _KINDS[found[3]]


def _bytes(arguments: dict[str, Any]) -> int | None:
    """Size of a tensor from its ``dtype`` and ``shape`` (``"[256, 10]"``)."""
    shape, dtype = arguments.get("shape"), arguments.get("dtype")
    if (
        not isinstance(shape, str)
        or not isinstance(dtype, str)
        or not re.fullmatch(r"\[[\d, ]{0,200}\]", shape)
    ):
        return None
    size = _SIZES.get(dtype)
    if size is None:
        return None
    for part in shape[1:-1].replace(",", " ").split():
        size *= int(part)
    return size if size <= _LARGEST_TENSOR else None


def _joined(work: list[_Work]) -> list[_Work]:
    """Join what overlaps and is of one kind: the same interval under each tensor of one response."""
    joined: list[_Work] = []
    last: dict[Kind, _Work] = {}
    for one in sorted(work, key=lambda one: (one.start_ns, one.end_ns)):
        bucket = last.get(one.kind)
        if bucket is None or one.start_ns >= bucket.end_ns or one.tensors[0] in bucket.tensors:
            last[one.kind] = one
            joined.append(one)
        else:
            bucket.tensors += one.tensors
            bucket.end_ns = max(bucket.end_ns, one.end_ns)
            bucket.step = min(bucket.step, one.step)
    return joined
