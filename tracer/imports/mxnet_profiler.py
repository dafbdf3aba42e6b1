"""MXNet's profiler (``mx.profiler``) as a Trace.

1. Operators stand twice in the file: as begin and end on the device's process (``cpu/0``) and as asynchronous pair
   on the process of their category, some microseconds apart. The first ones are taken → ``operator`` on a track for each device and worker;
   the second ones only where the first are missing, and for everything else (C API calls).
2. Forward, backward and update of a step are found from the operators' names in order of time: ``_backward_*`` is
   backward, ``*_update`` is the update, the rest is forward, but for operators that belong to neither (copies,
   random numbers, image decoding, freed variables). A forward operator after an update begins the next step; the
   engine runs what is ready, so backward operators between the two are that step's already. Forward lasts until
   its last operator ends, backward from there. Where operators are bulked (``ImperativeBulk``, MXNet's default) no
   name says backward: then those after ``SetValueOp``, which sets the loss's own gradient, are.
3. Counters → samples.

Process and thread numbers in these files are 64-bit hashes; they only serve to tell rows apart. Times are
microseconds since 1970. The file does not say which rank wrote it: it is taken for rank 0.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from ..schema import Kind
from ..trace import TraceMeta
from .damaged_json import Document
from .event_lists import BAD_TIMES, Interval, arguments_of, key_of, names_of, nested
from .event_rows import EventRows, Imported, text, time_ns

PROCESS = 0
OPERATORS = "operator"
_BACKWARD = "_backward"
_DEVICE = re.compile(r"^(cpu|gpu|cpu pinned|cpu shared)/\d+$")
_NEITHER = re.compile(
    r"^(DeleteVariable|WaitForVar|_?Copy|_copy|SetValueOp|_zeros|_ones|_full|_arange|_random|_sample|_image|_cvimread|"
    r"_imdecode|_grad_add|ElementWiseSum|add_n|KVStore|horovod|_set_value|ImageIter|PrefetchingIter|\[profiler)",
    re.IGNORECASE,
)
_CATEGORIES = {"operator", "MXNET_C_API", "Device Storage", "Pool Storage", "synchronization"}


def looks_like_mxnet(document: Document) -> bool:
    """Whether the events are an MXNet profile's."""
    for event in document.objects:
        if event.get("cat") in _CATEGORIES and event.get("ph") in ("B", "E", "b", "e", "C", "i"):
            return True
        if event.get("ph") == "M" and event.get("name") == "process_name":
            name = arguments_of(event).get("name")
            if isinstance(name, str) and _DEVICE.match(name):
                return True
    return False


def import_mxnet(document: Document) -> Imported:
    """The Trace in a profile's events; see the module for what becomes of them."""
    rows = EventRows()
    events = sorted(
        (event for event in document.objects if "ph" in event),
        key=lambda event: time_ns(event.get("ts")) or 0,
    )
    devices = names_of(events, "process_name")
    tracks = _Tracks(devices)
    operators = [interval for interval in nested(events, rows) if interval.name]
    seen = {interval.name for interval in operators}
    apart = []
    repeated = 0
    for interval in nested(events, rows, "be"):
        if interval.category == OPERATORS and interval.name in seen:
            repeated += 1
        elif interval.name:
            apart.append(interval)
    spans = phases([*operators, *(interval for interval in apart if interval.category == OPERATORS)])
    for span in spans:
        rows.add(span.kind, span.start_ns, span.end_ns, process=PROCESS, track="step", step=span.step, rank=0)
    begins = {span.step: span.start_ns for span in spans if span.kind is Kind.FORWARD}
    steps, starts = list(begins), list(begins.values())
    for interval in sorted([*operators, *apart], key=lambda one: (one.start_ns, -one.end_ns)):
        rows.add(
            Kind.OPERATOR,
            interval.start_ns,
            interval.end_ns,
            process=PROCESS,
            track=tracks.name(interval),
            step=steps[place] if (place := bisect_right(starts, interval.start_ns) - 1) >= 0 else None,
            rank=0,
            layer=interval.name,
        )
    _samples(events, rows)
    notes = ["assumed: rank 0, because an MXNet profile does not say which rank wrote it"]
    if spans:
        notes.append(
            "assumed: steps, forward, backward and update from the order of operators and their names"
        )
    if repeated:
        notes.append(f"{repeated:,} operators that stand twice in the file are counted once")
    meta = TraceMeta(source="imported:mxnet-profiler", ranks=1, notes=notes)
    return Imported(rows, meta)


@dataclass
class Span:
    """Forward, backward or update of one step."""

    kind: Kind
    step: int
    start_ns: int
    end_ns: int


def phases(operators: Iterable[Interval]) -> list[Span]:
    """The phases of all steps that have a backward, in order of time; empty when there is none (inference)."""
    spans: list[Span] = []
    for step, members in enumerate(_steps(operators)):
        ends = {
            kind: max(one.end_ns for one, its in members if its is kind)
            for kind in {its for _, its in members}
        }
        if Kind.BACKWARD not in ends:
            continue
        begin_ns = min(one.start_ns for one, _ in members)
        forward_ns = min(ends.get(Kind.FORWARD, begin_ns), ends[Kind.BACKWARD])
        spans.append(Span(Kind.FORWARD, step, begin_ns, forward_ns))
        spans.append(Span(Kind.BACKWARD, step, forward_ns, ends[Kind.BACKWARD]))
        if Kind.UPDATE in ends:
            first_ns = min(one.start_ns for one, its in members if its is Kind.UPDATE)
            spans.append(Span(Kind.UPDATE, step, first_ns, ends[Kind.UPDATE]))
    return spans


def _steps(operators: Iterable[Interval]) -> Iterator[list[tuple[Interval, Kind]]]:
    """The operators of each step with the phase that they belong to."""
    members: list[tuple[Interval, Kind]] = []
    updated = 0  # number of members up to the last update
    ordered = sorted(operators, key=lambda one: (one.start_ns, one.end_ns))
    bulked = not any(one.name.startswith(_BACKWARD) for one in ordered)
    going_back = False
    for operator in ordered:
        kind = _phase(operator.name)
        if operator.name == "SetValueOp" and bulked:
            going_back = any(its is Kind.FORWARD for _, its in members[updated:])
        if kind is None:
            continue
        if kind is Kind.FORWARD and going_back:
            kind = Kind.BACKWARD
        if kind is Kind.FORWARD and updated:
            yield members[:updated]
            members, updated = members[updated:], 0
        members.append((operator, kind))
        if kind is Kind.UPDATE:
            updated = len(members)
            going_back = False
    if members:
        yield members


def _phase(name: str) -> Kind | None:
    """Which part of a step an operator belongs to; None for those that say nothing."""
    if name.startswith(_BACKWARD):
        return Kind.BACKWARD
    if name.endswith("update") or "_update_" in name:
        return Kind.UPDATE
    return None if _NEITHER.match(name) else Kind.FORWARD


class _Tracks:
    """Names of rows: the device or category, and a number where it has several threads."""

    def __init__(self, devices: dict[Hashable, str]) -> None:
        self._devices = devices
        self._threads: dict[str, dict[Hashable, int]] = {}

    def name(self, interval: Interval) -> str:
        pid = interval.row[0] if isinstance(interval.row, tuple) else interval.row
        device = self._devices.get(pid) or interval.category or "process"
        threads = self._threads.setdefault(device, {})
        number = threads.setdefault(interval.row, len(threads))
        return device if number == 0 else f"{device} thread {number}"


def _samples(events: Iterable[dict[str, object]], rows: EventRows) -> None:
    for event in events:
        if event.get("ph") != "C":
            continue
        at_ns = time_ns(event.get("ts"))
        if at_ns is None:
            rows.dropped[BAD_TIMES] += 1
            continue
        for name, value in arguments_of(event).items():
            subject = text(event.get("cat")) or str(key_of(event.get("pid")))
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
                rows.sample(at_ns, PROCESS, subject, text(name) or "", float(value))
