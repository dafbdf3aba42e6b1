"""Perfetto's packets, put together byte by byte: rows, slices, arrows and counters of a picture.

Two message objects for each slice would be slower and need a package that nothing else does, so the bytes are
written here with ``..protobuf``. All packets are one sequence (field numbers from perfetto's trace_packet.proto,
track_descriptor.proto and track_event.proto):

* one ``TrackDescriptor`` for each process (with the process's number and name), each row (child of its process,
  ordered) and each counter;
* for each slice a begin and an end; names, categories and texts are interned (sent once, then by number);
* arrows as ``flow_ids`` (``terminating_flow_ids`` where they end) of the slices that they join.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ..protobuf import bytes_field, double_field, fixed64_field, number_field, text_field, varint
from .picture import CounterPoint, Slice, Track
from .timeline import Process

_SEQUENCE = number_field(10, 1)
_STATE_CLEARED = _SEQUENCE + number_field(13, 1 | 2)
_STATE_NEEDED = _SEQUENCE + number_field(13, 2)
_BEGIN, _END, _INSTANT, _COUNTER = (number_field(9, kind) for kind in (1, 2, 3, 4))
_NOTES_UUID = 1
_EXPLICIT_ORDER = number_field(11, 3)
_PIECES_AT_ONCE = 20_000
_MOST_REMEMBERED = 200_000
_LENGTHS = [varint(length) for length in range(512)]
_parsed = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Drawing:
    """What goes into one file; `shift_ns` turns a time of the picture into the file's."""

    processes: list[Process]
    notes: list[str]
    slices: Iterable[Slice]
    counters: Iterable[CounterPoint]
    shift_ns: int


@dataclass(frozen=True)
class Written:
    """How much went into one file."""

    slices: int
    size_bytes: int


def write_packets(file: BinaryIO, drawing: Drawing) -> Written:
    """Write all packets of `drawing` to `file`."""
    writer = PacketWriter(drawing.shift_ns)
    slices = 0

    def packets() -> Iterator[bytes]:
        nonlocal slices
        numbers = process_numbers(drawing.processes)
        for order, process in enumerate(drawing.processes):
            yield writer.process(process, numbers[process.pid], order)
        for text in drawing.notes:
            yield writer.note(text)
        for piece in drawing.slices:
            slices += 1
            yield writer.slice(piece)
        for point in drawing.counters:
            yield writer.counter(point)

    size = 0
    stream = packets()
    while pieces := list(itertools.islice(stream, _PIECES_AT_ONCE)):
        size += file.write(b"".join(pieces))
    return Written(slices, size)


class PacketWriter:
    """One sequence of packets: knows which names and tracks it has introduced.

    `shift_ns` is added to all times, which must not be negative then.
    """

    def __init__(self, shift_ns: int) -> None:
        self._shift_ns = shift_ns
        self._begun = False
        self._categories: dict[str, bytes] = {}
        self._names: dict[str, bytes] = {}
        self._keys: dict[str, bytes] = {}
        self._texts: dict[str, bytes] = {}
        self._annotations: dict[tuple[str, int | str], bytes] = {}
        self._tracks: dict[Track, tuple[dict[tuple[str, str], bytes], bytes]] = {}
        self._counters: dict[tuple[int, str], bytes] = {}
        self._fresh: list[bytes] = []

    def process(self, process: Process, number: int, order: int) -> bytes:
        """The packet that introduces `process` under the process number `number`."""
        labels = [f"rank {process.rank}"] if process.rank is not None else []
        labels += [f"host {process.host}"] if process.host else []
        about = number_field(1, number) + text_field(6, process.name)
        about += b"".join(text_field(8, label) for label in labels)
        return self._packet(
            bytes_field(
                60,
                number_field(1, _process_uuid(process.pid))
                + bytes_field(3, about)
                + _EXPLICIT_ORDER
                + number_field(12, order),
            )
        )

    def note(self, text: str) -> bytes:
        """A sentence for the reader, as an instant on a row of its own at the picture's begin."""
        row = self._packet(bytes_field(60, number_field(1, _NOTES_UUID) + text_field(2, "vsketchdlc")))
        event = _INSTANT + number_field(11, _NOTES_UUID) + text_field(23, text)
        return row + self._packet(number_field(8, self._shift_ns) + bytes_field(11, event))

    def slice(self, piece: Slice) -> bytes:
        """The packets of one slice, and before them those that introduce its row."""
        known = self._tracks.get(piece.track)
        introduction = b""
        if known is None:
            known, introduction = self._introduce(piece.track)
        heads, end_tail = known
        shift_ns = self._shift_ns
        _, start_ns, end_ns, name, kind, arguments, arrow_out, arrows_in, arrows_through = piece
        head = heads.get((name, kind))
        if head is None:
            head = heads[(name, kind)] = (
                heads[("", "")]
                + self._interned(self._names, 2, 10, name)
                + self._interned(self._categories, 1, 3, kind)
            )
        event = [head]
        for item in _parsed(arguments)[0].items():
            event.append(self._annotations.get(item) or self._annotation(*item))
        if arrow_out or arrows_in or arrows_through:
            event.extend(fixed64_field(47, number) for number in (arrow_out, *arrows_through) if number)
            event.extend(fixed64_field(48, number) for number in arrows_in)
        body = b"".join(event)
        begin = b"@" + _time(start_ns + shift_ns) + b"Z" + varint(len(body)) + body
        end = b"@" + _time(end_ns + shift_ns) + end_tail
        return introduction + self._packet(begin) + b"\n" + _LENGTHS[len(end)] + end

    def counter(self, point: CounterPoint) -> bytes:
        """The packet of one counter value, and before the first one that which introduces the series."""
        uuid = self._counters.get((point.pid, point.name))
        introduction = b""
        if uuid is None:
            number = (_process_uuid(point.pid) | 1 << 19) + len(self._counters)
            uuid = self._counters[(point.pid, point.name)] = number_field(11, number)
            about = (
                number_field(1, number)
                + number_field(5, _process_uuid(point.pid))
                + text_field(2, point.name)
            )
            introduction = self._packet(
                bytes_field(60, about + bytes_field(8, b"") + number_field(12, 1 << 30))
            )
        event = _COUNTER + uuid + double_field(44, point.value)
        time_ns = point.time_ns + self._shift_ns
        return introduction + self._packet(number_field(8, time_ns) + bytes_field(11, event))

    def _introduce(self, track: Track) -> tuple[tuple[dict[tuple[str, str], bytes], bytes], bytes]:
        uuid = _process_uuid(track.pid) + track.tid
        end_event = _END + number_field(11, uuid)
        known = (
            {("", ""): _BEGIN + number_field(11, uuid)},
            _STATE_NEEDED + bytes_field(11, end_event),
        )
        self._tracks[track] = known
        about = (
            number_field(1, uuid)
            + number_field(5, _process_uuid(track.pid))
            + text_field(2, track.name)
            + number_field(12, track.order)
            + number_field(15, 2)  # not merged with a row of the same name
        )
        return known, self._packet(bytes_field(60, about))

    def _annotation(self, name: str, value: int | str) -> bytes:
        head = self._interned(self._keys, 3, 1, name)
        if isinstance(value, str):
            body = head + self._interned(self._texts, 29, 17, value)
        else:
            body = head + number_field(4, value)
        annotation = b"\x22" + varint(len(body)) + body
        if len(self._annotations) < _MOST_REMEMBERED:
            self._annotations[(name, value)] = annotation
        return annotation

    def _interned(self, known: dict[str, bytes], table: int, reference: int, text: str) -> bytes:
        """The field that refers to `text`, which is sent with the next packet if it is new."""
        found = known.get(text)
        if found is None:
            number = len(known) + 1
            found = known[text] = number_field(reference, number)
            entry = number_field(1, number) + text_field(2, text)
            self._fresh.append(bytes_field(table, entry))
        return found

    def _packet(self, body: bytes) -> bytes:
        flags = _STATE_NEEDED if self._begun else _STATE_CLEARED
        self._begun = True
        body += flags
        if self._fresh:
            body += bytes_field(12, b"".join(self._fresh))
            self._fresh.clear()
        size = len(body)
        return b"\n" + (_LENGTHS[size] if size < 512 else varint(size)) + body


def process_numbers(processes: list[Process]) -> dict[int, int]:
    """The number under which Perfetto shows each process: the system's own where no two share one.

    Number 0 would be the idle process, which Perfetto hides.
    """
    own = [process.os_pid or 0 for process in processes]
    if len(set(own)) == len(own) and all(0 < number < 2**31 for number in own):
        return {process.pid: number for process, number in zip(processes, own, strict=True)}
    return {process.pid: process.pid + 1 for process in processes}


def _process_uuid(pid: int) -> int:
    return (pid + 1) << 20


_HIGH: dict[int, bytes] = {}


def _time(value: int) -> bytes:
    """`varint` of a time, four times as fast: the bits above 28 are the same for a quarter of a second."""
    high = value >> 28
    tail = _HIGH.get(high)
    if tail is None:
        if len(_HIGH) > 100_000:
            _HIGH.clear()
        tail = _HIGH[high] = varint(high)
    return (
        bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21 & 127 | 128))
        + tail
    )
