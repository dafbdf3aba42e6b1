"""A picture as Chrome Trace Event JSON: opens in Perfetto and in chrome://tracing.

The array form is written, one event a line, because only that one survives being cut. ``ts`` and ``dur`` are
microseconds with three decimals (so nothing of a nanosecond is lost), counted from a base that stands as
``base_ns`` in each process's ``process_name`` event: absolute stamps would not fit a double. A process is a rank
(pid = rank; lanes and servers from 100,000), a thread is one row of nested slices. Arrows are ``s``/``t``/``f``
events with integer ids, since Perfetto reads an id in quotes as hexadecimal.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import UserError
from ..trace import Trace
from .arrows import ARGUMENTS, REQUESTS
from .columns import Column, Integers, decimals, joined, of_each, thousandths, whole
from .picture import CounterPoint, Picture, Slices, Track, open_picture
from .timeline import SOCKETS, Process
from .whole_file import WrittenFile, export_file
from .window import Costs, choose, told

COSTS = Costs(slice_bytes=125, arrow_bytes=255, counter_bytes=110, text_factor=1.3)

DEFAULT_LIMIT_BYTES = 50_000_000
_LINES_AT_ONCE = 20_000
_END = b",\n"


class _TooLarge(Exception):
    """The file passed its limit while it was written."""


def export_chrome(
    trace: Trace,
    path: Path,
    *,
    limit_bytes: float = DEFAULT_LIMIT_BYTES,
    steps: tuple[int, int] | None = None,
    hosts: Collection[str | None] | None = None,
) -> WrittenFile:
    """Write `trace` to `path`, below `limit_bytes` of JSON (before compression; `math.inf` for no limit).

    `steps` are the first and last step wanted, None for all; `hosts` are those drawn, None for all. The older
    file at `path` is replaced only when the new one is complete. Raises UserError when nothing of the trace is
    selected or `path` cannot be written.
    """
    with open_picture(trace, hosts) as picture:
        aim_bytes = limit_bytes * 0.98
        for _ in range(8):
            selection = choose(picture, COSTS, aim_bytes, steps)
            picture.select(selection)
            if picture.is_empty():
                raise UserError(f"{trace.path} has no events in the chosen steps and hosts; choose others")
            picture.notes = told(picture, selection, limit_bytes, steps)
            try:
                return _write(picture, path, limit_bytes)
            except _TooLarge:
                aim_bytes *= 0.7
    raise UserError(
        f"not even one step of {trace.path} fits into {limit_bytes / 1e6:.3g} MB; give a larger --max-mb"
    )


def _write(picture: Picture, path: Path, limit_bytes: float) -> WrittenFile:
    slices = 0
    size = 0
    with export_file(path) as file:
        separator = b"[\n"
        for text, count in _pieces(picture):
            slices += count
            if text:
                size += file.write(separator) + file.write(memoryview(text)[: -len(_END)])
                separator = _END
            if size > limit_bytes:
                raise _TooLarge
        size += file.write(b"\n]\n")
        if size > limit_bytes:
            raise _TooLarge
    return WrittenFile(path, slices, size, list(picture.notes))


def _pieces(picture: Picture) -> Iterator[tuple[bytes, int]]:
    """The file's events, each with `_END` behind it, in pieces; and how many slices are in each."""
    known: set[tuple[int, int]] = set()
    yield _ended(_head_lines(picture)), 0
    for some in picture.slices():
        fresh = [track for track in some.tracks if (track.pid, track.tid) not in known]
        known.update((track.pid, track.tid) for track in fresh)
        yield _ended(line for track in fresh for line in _track_lines(track)), 0
        yield whole(_slice_lines(some)), len(some)
        yield _arrow_lines(some), 0
    points = picture.counters()
    while lines := [_counter_line(point) for point in itertools.islice(points, _LINES_AT_ONCE)]:
        yield _ended(lines), 0


def _ended(lines: Iterable[str]) -> bytes:
    return "".join(f"{line},\n" for line in lines).encode()


def _head_lines(picture: Picture) -> Iterator[str]:
    for order, process in enumerate(picture.processes):
        yield from _process_lines(process, order, picture.base_ns)
    for note in picture.notes:
        yield f'{{"ph":"i","s":"g","name":{_quoted(note)},"ts":0}}'


def _process_lines(process: Process, order: int, base_ns: int) -> Iterator[str]:
    facts = {"name": process.name, "base_ns": base_ns, "os_pid": process.os_pid, "host": process.host}
    head = f'"ph":"M","pid":{process.pid}'
    yield f'{{{head},"name":"process_name","args":{json.dumps(facts, ensure_ascii=False)}}}'
    yield f'{{{head},"name":"process_sort_index","args":{{"sort_index":{order}}}}}'


def _track_lines(track: Track) -> Iterator[str]:
    head = f'"ph":"M","pid":{track.pid},"tid":{track.tid}'
    yield f'{{{head},"name":"thread_name","args":{{"name":{_quoted(track.name)}}}}}'
    yield f'{{{head},"name":"thread_sort_index","args":{{"sort_index":{track.order}}}}}'


def _slice_lines(some: Slices) -> pa.Array:
    """A line for each slice."""
    facts = some.facts
    arguments: list[Column] = []
    for name in ARGUMENTS:
        column = facts[name]
        if column.null_count == len(column):
            continue
        if pa.types.is_integer(column.type):
            value = decimals(column)
        else:
            value = of_each(column, lambda text: _quoted(text).encode())
        mask = pc.if_else(pc.is_valid(column), f'"{name}":'.encode(), pa.scalar(None, pa.binary()))
        arguments.append(pc.binary_join_element_wise(mask, value, pa.scalar(b"", pa.binary())))
    told: Column = joined(arguments, b",") if arguments else b""
    return joined(
        [
            b'{"ph":"X","name":',
            of_each(facts["name"], lambda text: _quoted(text).encode()),
            b',"cat":',
            of_each(facts["kind"], lambda text: _quoted(text).encode()),
            _row_of(some),
            b',"ts":',
            *thousandths(some.start_ns),
            b',"dur":',
            *thousandths(some.end_ns - some.start_ns),
            b',"args":{',
            told,
            b"}},\n",
        ]
    )


def _row_of(some: Slices) -> pa.Array:
    """``,"pid":P,"tid":T`` of each slice."""
    rows = [f',"pid":{track.pid},"tid":{track.tid}'.encode() for track in some.tracks]
    return pa.array(rows, pa.binary()).take(pa.array(some.track))


def _arrow_lines(some: Slices) -> bytes:
    """Lines for what leaves, passes and reaches these slices; they come after all of them, as viewers want it."""
    facts = some.facts
    leaving = np.flatnonzero(facts["arrow_out"].to_numpy(zero_copy_only=False))
    text = b""
    if len(leaving):
        numbers = facts["arrow_out"].take(pa.array(leaving))
        text += whole(_arrows(some, "s", leaving, numbers, some.arrow_out_ns[leaving]))
    for phase, name in (("t", "arrows_through"), ("f", "arrows_in")):
        parts = pc.split_pattern(pc.cast(facts[name], pa.string()), ",")
        places = pc.list_parent_indices(parts).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(places):
            text += whole(_arrows(some, phase, places, parts.flatten(), some.start_ns[places]))
    return text


def _arrows(some: Slices, phase: str, places: Integers, numbers: pa.Array, times_ns: Integers) -> pa.Array:
    binding = b',"bp":"e"' if phase == "f" else b""
    return joined(
        [
            f'{{"ph":"{phase}","name":"'.encode(),
            of_each(some.facts["kind"].take(pa.array(places)), _arrow_name),
            b'","cat":"flow","id":',
            decimals(numbers),
            binding,
            _row_of(some).take(pa.array(places)),
            b',"ts":',
            *thousandths(times_ns),
            b"},\n",
        ]
    )


def _arrow_name(kind: str) -> bytes:
    return b"message" if kind in SOCKETS else b"request" if kind in REQUESTS else b"gradient"


def _counter_line(point: CounterPoint) -> str:
    return (
        f'{{"ph":"C","name":{_quoted(point.name)},"pid":{point.pid},'
        f'"ts":{point.time_ns // 1000}.{point.time_ns % 1000:03d},"args":{{"value":{point.value!r}}}}}'
    )


@lru_cache(maxsize=65536)
def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
