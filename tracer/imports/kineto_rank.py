"""The rows of one rank out of its PyTorch profiler file: steps, phases, collectives, operators."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..schema import Kind
from .event_rows import EventRows, whole
from .source_file import SourceFile

_COLLECTIVES = (
    ("reduce_scatter", Kind.REDUCESCATTER),
    ("reducescatter", Kind.REDUCESCATTER),
    ("all_reduce", Kind.ALLREDUCE),
    ("allreduce", Kind.ALLREDUCE),
    ("all_gather", Kind.ALLGATHER),
    ("allgather", Kind.ALLGATHER),
    ("all_to_all", Kind.ALLTOALL),
    ("alltoall", Kind.ALLTOALL),
    ("sendrecv", Kind.ALLTOALL),
    ("broadcast", Kind.BROADCAST),
    ("barrier", Kind.BARRIER),
)
_LIBRARIES = ("nccl:", "gloo:", "mpi:", "ucc:", "xccl:")
_GPU = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
_LAUNCHES = {"cuda_runtime", "cuda_driver"}
_LARGEST = 1 << 50
_DTYPES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "c10::half": 2, "bfloat16": 2,
    "c10::bfloat16": 2, "long": 8, "long int": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "int16": 2,
    "byte": 1, "char": 1, "signed char": 1, "unsigned char": 1, "uint8": 1, "int8": 1, "bool": 1,
}  # fmt: skip


class Work(NamedTuple):
    """One complete event of the file; `row` is (pid, tid)."""

    name: str
    category: str
    row: tuple[Hashable, Hashable]
    start_ns: int
    end_ns: int
    arguments: dict[str, Any]


@dataclass
class RankFile:
    """One file; ``steps`` are (start, end, number) of its ProfilerSteps in order."""

    source: SourceFile
    rank_in_file: int | None
    world: int
    rank: int = 0
    process: int = 0
    host: str | None = None
    work: list[Work] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    threads: dict[Hashable, str] = field(default_factory=dict)


@dataclass
class _Collective:
    kind: Kind
    start_ns: int
    end_ns: int
    step: int | None
    bytes: int | None
    track: str


@dataclass
class Calls:
    """How the collectives of the files were found, in numbers of calls.

    ``on_cpu`` had no kernels at all in their file, so the call itself was taken; ``without_kernel`` lack only
    their own.
    """

    on_cpu: int = 0
    without_kernel: int = 0


def add_rank(file: RankFile, rows: EventRows, first_step: int, calls: Calls) -> None:
    """Add all rows of `file`, counting in `calls` how its collectives were found."""
    _RankRows(file, rows, first_step, calls).add()


class _RankRows:
    def __init__(self, file: RankFile, rows: EventRows, first_step: int, calls: Calls) -> None:
        self._file = file
        self._calls_found = calls
        self._rows = rows
        self._first_step = first_step
        self._starts = [start for start, _, _ in file.steps]

    def add(self) -> None:
        collectives, used = self._collectives()
        counts: dict[int | None, int] = defaultdict(int)
        for one in sorted(collectives, key=lambda one: one.start_ns):
            bucket = counts[one.step]
            counts[one.step] += 1
            self._add(
                one.kind, one.start_ns, one.end_ns, one.track, one.step, bucket=bucket, bytes_=one.bytes
            )
        self._phases()
        for place, work in enumerate(self._file.work):
            if place not in used:
                step = self._step(work.start_ns)
                self._add(Kind.OPERATOR, work.start_ns, work.end_ns, self._track(work), step, layer=work.name)

    def _collectives(self) -> tuple[list[_Collective], set[int]]:
        """Collectives, and the places of the events that they are made of."""
        calls = self._calls()
        kernels = {
            place: kind
            for place, work in enumerate(self._file.work)
            if work.category == "kernel"
            and "nccl" in work.name.lower()
            and (kind := _kind(work.name)) is not None
        }
        by_correlation: dict[Hashable, list[int]] = defaultdict(list)
        for place in kernels:
            by_correlation[_correlation(self._file.work[place])].append(place)
        launches = self._launches()
        found: list[_Collective] = []
        used: set[int] = set()
        for place, size in calls.items():
            call = self._file.work[place]
            step = self._step(call.start_ns)
            launched = [
                kernel
                for correlation in _within(launches.get(call.row, []), call.start_ns, call.end_ns)
                for kernel in by_correlation.pop(correlation, [])
            ]
            kind = _kind(str(call.arguments.get("Collective name", ""))) or _kind(call.name)
            if not kernels and kind is not None:
                used.add(place)
                self._calls_found.on_cpu += 1
                found.append(_Collective(kind, call.start_ns, call.end_ns, step, size, self._track(call)))
            elif not launched:
                self._calls_found.without_kernel += 1
            for number, kernel in enumerate(launched):
                work = self._file.work[kernel]
                used.add(kernel)
                track = self._track(work)
                bytes_ = size if number == 0 else None
                found.append(
                    _Collective(kind or kernels[kernel], work.start_ns, work.end_ns, step, bytes_, track)
                )
        for places in by_correlation.values():
            for kernel in places:
                work = self._file.work[kernel]
                used.add(kernel)
                step = self._step(work.start_ns)
                found.append(
                    _Collective(kernels[kernel], work.start_ns, work.end_ns, step, None, self._track(work))
                )
        return found, used

    def _calls(self) -> dict[int, int | None]:
        """Places of the calls of collectives, with their bytes.

        An annotation of the library lies inside the ``record_param_comms`` that knows the sizes; where there are no
        annotations, that one is the call.
        """
        calls: dict[int, int | None] = {}
        details = [
            (place, work) for place, work in enumerate(self._file.work) if work.name == "record_param_comms"
        ]
        by_row: dict[Hashable, list[tuple[int, int, int]]] = defaultdict(list)
        for place, work in details:
            by_row[work.row].append((work.start_ns, work.end_ns, place))
        for entries in by_row.values():
            entries.sort()
        for place, work in enumerate(self._file.work):
            if work.name.startswith(_LIBRARIES) and work.category in ("user_annotation", "cpu_op"):
                around = _around(by_row.get(work.row, []), work.start_ns, work.end_ns)
                known = {} if around is None else self._file.work[around].arguments
                calls[place] = _message_bytes(known) or _input_bytes(work.arguments)
        if not calls:
            for place, work in details:
                if _kind(str(work.arguments.get("Collective name", ""))) is not None:
                    calls[place] = _message_bytes(work.arguments)
        return calls

    def _launches(self) -> dict[Hashable, list[tuple[int, Hashable]]]:
        """By thread: (time, correlation) of the launches of kernels, in order of time."""
        launches: dict[Hashable, list[tuple[int, Hashable]]] = defaultdict(list)
        for work in self._file.work:
            if work.category in _LAUNCHES and "correlation" in work.arguments:
                launches[work.row].append((work.start_ns, _correlation(work)))
        for entries in launches.values():
            entries.sort(key=lambda entry: entry[0])
        return launches

    def _phases(self) -> None:
        spans: dict[tuple[Kind, int | None, int], tuple[int, int]] = {}
        for work in self._file.work:
            found = _phase(work)
            if found is None:
                continue
            key = (found[0], self._step(work.start_ns), found[1])
            start, end = spans.get(key, (work.start_ns, work.end_ns))
            spans[key] = (min(start, work.start_ns), max(end, work.end_ns))
        best: dict[tuple[Kind, int | None], tuple[int, int, int]] = {}
        for (kind, step, quality), (start, end) in spans.items():
            best[kind, step] = min(best.get((kind, step), (quality, start, end)), (quality, start, end))
        for (kind, step), (_, start, end) in sorted(best.items(), key=lambda item: item[1][1]):
            if step is not None or not self._file.steps:
                self._add(kind, start, end, "step", 0 if step is None else step)

    def _step(self, at_ns: int) -> int | None:
        place = bisect_right(self._starts, at_ns) - 1
        if place < 0 or at_ns >= self._file.steps[place][1]:
            return None
        return self._file.steps[place][2] - self._first_step

    def _track(self, work: Work) -> str:
        pid, tid = work.row
        if work.category in _GPU:
            device, stream = work.arguments.get("device", pid), work.arguments.get("stream", tid)
            return f"GPU {whole(device) or 0} stream {str(stream)[:40]}"
        return self._file.threads.get((pid, tid)) or f"thread {str(tid)[:40]}"

    def _add(
        self,
        kind: Kind,
        start_ns: int,
        end_ns: int,
        track: str,
        step: int | None,
        *,
        layer: str | None = None,
        bucket: int | None = None,
        bytes_: int | None = None,
    ) -> None:
        self._rows.add(
            kind,
            start_ns,
            end_ns,
            process=self._file.process,
            track=track,
            step=step,
            rank=self._file.rank,
            host=self._file.host,
            layer=layer,
            bucket=bucket,
            bytes_=bytes_,
        )


def _kind(name: str) -> Kind | None:
    """The collective that a call or a kernel is named after."""
    lower = name.lower()
    return next((kind for word, kind in _COLLECTIVES if word in lower), None)


def _phase(work: Work) -> tuple[Kind, int] | None:
    """What part of a step an event marks, and how well: 0 says it, 1 is as good, 2 has to be put together."""
    if work.name in ("## forward ##", "## backward ##"):
        return (Kind.FORWARD if "forward" in work.name else Kind.BACKWARD), 0
    if work.name == "DistributedDataParallel.forward":
        return Kind.FORWARD, 1
    if work.name.startswith("Optimizer.step#") and work.category == "user_annotation":
        return Kind.UPDATE, 0
    if work.name.startswith("autograd::engine::evaluate_function") and work.category == "cpu_op":
        return Kind.BACKWARD, 2
    return None


def _correlation(work: Work) -> Hashable:
    value = work.arguments.get("correlation")
    return value if isinstance(value, int | str) else None


def _within(entries: list[tuple[int, Hashable]], start_ns: int, end_ns: int) -> Iterable[Hashable]:
    first = bisect_right(entries, start_ns - 1, key=lambda entry: entry[0])
    for at_ns, correlation in entries[first:]:
        if at_ns > end_ns:
            return
        if correlation is not None:
            yield correlation


def _around(entries: list[tuple[int, int, int]], start_ns: int, end_ns: int) -> int | None:
    """The place of the last entry that begins before and ends after an interval."""
    last = bisect_right(entries, start_ns, key=lambda entry: entry[0])
    for start, end, place in reversed(entries[max(0, last - 8) : last]):
        if start <= start_ns and end >= end_ns:
            return place
    return None


def _message_bytes(arguments: dict[str, Any]) -> int | None:
    """Bytes of a message from ``In msg nelems`` and ``dtype``."""
    count = whole(arguments.get("In msg nelems"), _LARGEST)
    dtype = arguments.get("dtype")
    size = _DTYPES.get(dtype.lower()) if isinstance(dtype, str) else None
    return None if count is None or size is None else count * size


def _input_bytes(arguments: dict[str, Any]) -> int | None:
    """Bytes of all inputs from ``Input Dims`` and ``Input type``."""
    shapes, types = arguments.get("Input Dims"), arguments.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    total = 0
    for shape, name in zip(shapes, types, strict=False):
        size = _DTYPES.get(name.lower()) if isinstance(name, str) else None
        if size is None or not isinstance(shape, list) or len(shape) > 16:
            continue
        for part in shape:
            size *= whole(part, _LARGEST) or 0
        total += size
    return total if 0 < total <= _LARGEST else None
