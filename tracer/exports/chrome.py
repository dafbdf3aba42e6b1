"""A picture as Chrome Trace Event JSON: opens in Perfetto and in chrome://tracing.

The array form is written, one event a line, because only that one survives being cut. ``ts`` and ``dur`` are
microseconds with three decimals (so nothing of a nanosecond is lost), counted from a base that stands as
``base_ns`` in each process's ``process_name`` event: absolute stamps would not fit a double. A process is a rank
(pid = rank; lanes and servers from 100,000), a thread is one row of nested slices. Arrows are ``s``/``t``/``f``
events with integer ids, since Perfetto reads an id in quotes as hexadecimal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

from ...errors import UserError
from ..trace import Trace
from .arrows import REQUESTS
from .picture import CounterPoint, Picture, Slice, Track, open_picture
from .timeline import SOCKETS, Process
from .whole_file import WrittenFile, export_file
from .window import Costs, choose, told

COSTS = Costs(slice_bytes=125, arrow_bytes=255, counter_bytes=110, text_factor=1.3)

DEFAULT_LIMIT_BYTES = 50_000_000
_LINES_AT_ONCE = 20_000


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
    lines: list[str] = []
    with export_file(path) as file:
        separator = "[\n"
        for line in _lines(picture):
            lines.append(line)
            slices += line.startswith('{"ph":"X"')
            if len(lines) >= _LINES_AT_ONCE:
                size += file.write((separator + ",\n".join(lines)).encode())
                separator = ",\n"
                lines.clear()
                if size > limit_bytes:
                    raise _TooLarge
        text = separator + ",\n".join(lines) if lines else ""
        size += file.write((text + "\n]\n").encode())
        if size > limit_bytes:
            raise _TooLarge
    return WrittenFile(path, slices, size, list(picture.notes))


def _lines(picture: Picture) -> Iterator[str]:
    """Every event of the file as one line of JSON."""
    for order, process in enumerate(picture.processes):
        yield from _process_lines(process, order, picture.base_ns)
    for note in picture.notes:
        yield f'{{"ph":"i","s":"g","name":{_quoted(note)},"ts":0}}'
    known: set[Track] = set()
    for piece in picture.slices():
        if piece.track not in known:
            known.add(piece.track)
            yield from _track_lines(piece.track)
        yield _slice_line(piece)
        if piece.arrow_out or piece.arrows_in or piece.arrows_through:
            yield from _arrow_lines(piece)
    for point in picture.counters():
        yield _counter_line(point)


def _process_lines(process: Process, order: int, base_ns: int) -> Iterator[str]:
    facts = {"name": process.name, "base_ns": base_ns, "os_pid": process.os_pid, "host": process.host}
    head = f'"ph":"M","pid":{process.pid}'
    yield f'{{{head},"name":"process_name","args":{json.dumps(facts, ensure_ascii=False)}}}'
    yield f'{{{head},"name":"process_sort_index","args":{{"sort_index":{order}}}}}'


def _track_lines(track: Track) -> Iterator[str]:
    head = f'"ph":"M","pid":{track.pid},"tid":{track.tid}'
    yield f'{{{head},"name":"thread_name","args":{{"name":{_quoted(track.name)}}}}}'
    yield f'{{{head},"name":"thread_sort_index","args":{{"sort_index":{track.order}}}}}'


def _slice_line(piece: Slice) -> str:
    track, start_ns, end_ns, name, kind, arguments = piece[:6]
    us, ns = divmod(start_ns, 1000)
    long_us, long_ns = divmod(end_ns - start_ns, 1000)
    return (
        f'{{"ph":"X","name":{_quoted(name)},"cat":{_quoted(kind)},"pid":{track.pid},"tid":{track.tid},'
        f'"ts":{us}.{ns:03d},"dur":{long_us}.{long_ns:03d},"args":{arguments}}}'
    )


def _arrow_lines(piece: Slice) -> Iterator[str]:
    if piece.arrow_out:
        yield _arrow_line("s", piece, piece.arrow_out, piece.arrow_out_ns)
    for number in piece.arrows_through:
        yield _arrow_line("t", piece, number, piece.start_ns)
    for number in piece.arrows_in:
        yield _arrow_line("f", piece, number, piece.start_ns)


def _arrow_line(phase: str, piece: Slice, number: int, time_ns: int) -> str:
    binding = ',"bp":"e"' if phase == "f" else ""
    name = "message" if piece.kind in SOCKETS else "request" if piece.kind in REQUESTS else "gradient"
    return (
        f'{{"ph":"{phase}","name":"{name}","cat":"flow","id":{number}{binding},"pid":{piece.track.pid},'
        f'"tid":{piece.track.tid},"ts":{time_ns // 1000}.{time_ns % 1000:03d}}}'
    )


def _counter_line(point: CounterPoint) -> str:
    return (
        f'{{"ph":"C","name":{_quoted(point.name)},"pid":{point.pid},'
        f'"ts":{point.time_ns // 1000}.{point.time_ns % 1000:03d},"args":{{"value":{point.value!r}}}}}'
    )


@lru_cache(maxsize=65536)
def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
