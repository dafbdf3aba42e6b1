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

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..protobuf import (
    BYTES,
    FIXED64,
    VARINT,
    bytes_field,
    double_field,
    key,
    number_field,
    text_field,
    varint,
)
from .arrows import ARGUMENTS
from .columns import Column, fixed64, grouped, joined, lengths, of_each, varint_width, varints, whole
from .picture import CounterPoint, Slices, Track
from .timeline import Process

_SEQUENCE = number_field(10, 1)
_STATE_CLEARED = _SEQUENCE + number_field(13, 1 | 2)
_STATE_NEEDED = _SEQUENCE + number_field(13, 2)
_BEGIN, _END, _INSTANT, _COUNTER = (number_field(9, kind) for kind in (1, 2, 3, 4))
_NOTES_UUID = 1
_EXPLICIT_ORDER = number_field(11, 3)
_PIECES_AT_ONCE = 20_000
_FLOW, _FLOW_END = key(47, FIXED64), key(48, FIXED64)
_INT_VALUE = key(4, VARINT)


@dataclass(frozen=True)
class Drawing:
    """What goes into one file; `shift_ns` turns a time of the picture into the file's."""

    processes: list[Process]
    notes: list[str]
    slices: Iterable[Slices]
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
        for some in drawing.slices:
            slices += len(some)
            yield writer.slices(some)
        for point in drawing.counters:
            yield writer.counter(point)

    size = 0
    stream = packets()
    while pieces := list(itertools.islice(stream, _PIECES_AT_ONCE)):
        size += file.write(b"".join(pieces))
    return Written(slices, size)


class _Row(NamedTuple):
    """What is the same in all events of a row: the head of a begin, the tail of an end's packet."""

    begin: bytes
    end: bytes


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
        self._tracks: dict[Track, _Row] = {}
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

    def slices(self, some: Slices) -> bytes:
        """The packets of some slices, and before them those that introduce what they refer to."""
        fresh = [track for track in some.tracks if track not in self._tracks]
        introduction = b"".join(self._introduce(track) for track in fresh)
        body = joined(self._event_columns(some))
        time, end_time = varints(some.start_ns + self._shift_ns), varints(some.end_ns + self._shift_ns)
        event_size = varints(lengths(body))
        rows = pa.array(some.track)
        tails = pa.array([self._tracks[track].end for track in some.tracks], pa.binary()).take(rows)
        begin_size = 2 + lengths(time) + lengths(event_size) + lengths(body) + len(_STATE_NEEDED)
        end_size = 1 + lengths(end_time) + lengths(tails)
        begin: list[Column] = [b"\n", varints(begin_size), b"@", time, b"Z", event_size, body, _STATE_NEEDED]
        packets = joined([*begin, b"\n", varints(end_size), b"@", end_time, tails])
        if self._fresh:  # after _event_columns: it finds what is new
            introduction += self._packet(b"")
        return introduction + whole(packets)

    def _event_columns(self, some: Slices) -> list[Column]:
        """What the event of each slice's begin is made of."""
        facts = some.facts
        heads = pa.array([self._tracks[track].begin for track in some.tracks], pa.binary())
        columns: list[Column] = [
            heads.take(pa.array(some.track)),
            of_each(facts["name"], lambda name: self._interned(self._names, 2, 10, name)),
            of_each(facts["kind"], lambda kind: self._interned(self._categories, 1, 3, kind)),
        ]
        for name in ARGUMENTS:
            column = facts[name]
            if column.null_count == len(column):
                continue
            if pa.types.is_integer(column.type):
                columns.append(self._number_annotations(name, column))
            else:
                columns.append(of_each(column, functools.partial(self._text_annotation, name)))
        out = facts["arrow_out"].to_numpy(zero_copy_only=False)
        if out.any():
            columns.append(fixed64(out, _FLOW, absent=out == 0))
        for name, prefix in (("arrows_through", _FLOW), ("arrows_in", _FLOW_END)):
            if facts[name].null_count < len(out):
                texts = pc.cast(facts[name], pa.string())
                columns.append(grouped(texts, functools.partial(fixed64, prefix=prefix)))
        return columns

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

    def _introduce(self, track: Track) -> bytes:
        uuid = _process_uuid(track.pid) + track.tid
        row = number_field(11, uuid)
        self._tracks[track] = _Row(_BEGIN + row, _STATE_NEEDED + bytes_field(11, _END + row))
        about = (
            number_field(1, uuid)
            + number_field(5, _process_uuid(track.pid))
            + text_field(2, track.name)
            + number_field(12, track.order)
            + number_field(15, 2)  # not merged with a row of the same name
        )
        return self._packet(bytes_field(60, about))

    def _text_annotation(self, name: str, value: str) -> bytes:
        head = self._interned(self._keys, 3, 1, name)
        return bytes_field(4, head + self._interned(self._texts, 29, 17, value))

    def _number_annotations(self, name: str, column: pa.Array) -> pa.Array:
        head = self._interned(self._keys, 3, 1, name) + _INT_VALUE
        absent = pc.is_null(column).to_numpy(zero_copy_only=False)
        values = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False)
        size = len(head) + varint_width(values)
        return varints(values, key(4, BYTES) + varint(size) + head, absent)

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
        return b"\n" + varint(size) + body


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
