"""Protocol buffers on the wire: as much as writing and reading trace files needs, without generated classes.

A message is a sequence of fields; a field is a key (number and wire type in one varint) and a value: a varint, eight
or four bytes, or a length and that many bytes (text, bytes, messages, packed numbers).
Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_LONGEST_VARINT = 10


class Damaged(ValueError):
    """The bytes are no message; `offset` is where that shows."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


class Field(NamedTuple):
    """One field: `value` is a number (VARINT, FIXED64 and FIXED32 as unsigned) or the bytes of a BYTES field."""

    number: int
    wire_type: int
    value: int | bytes
    offset: int


def varint(value: int) -> bytes:
    """`value` in groups of seven bits, the lowest first; negative numbers as 64-bit two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def key(number: int, wire_type: int) -> bytes:
    """What stands before a value."""
    return varint(number << 3 | wire_type)


def number_field(number: int, value: int) -> bytes:
    """A field of one of the varint types (int, uint, bool, enum)."""
    return key(number, VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of bytes or of a message."""
    return key(number, BYTES) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    """A string field; lone surrogates, which no UTF-8 text has, become question marks."""
    return bytes_field(number, value.encode("utf-8", "replace"))


def fixed64_field(number: int, value: int) -> bytes:
    """A fixed64 field."""
    return key(number, FIXED64) + struct.pack("<Q", value)


def double_field(number: int, value: float) -> bytes:
    """A double field."""
    return key(number, FIXED64) + struct.pack("<d", value)


def read_varint(data: bytes, offset: int, end: int) -> tuple[int, int]:
    """The varint at `offset` and the offset behind it; nothing at or behind `end` is read.

    Raises Damaged when it is cut or longer than ten bytes.
    """
    value = 0
    for index in range(_LONGEST_VARINT):
        if offset + index >= end:
            raise Damaged(offset, "the data ends inside a number")
        byte = data[offset + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + index + 1
    raise Damaged(offset, "a number is longer than ten bytes")


def fields(data: bytes, offset: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of the message in ``data[offset:end]``, in the file's order.

    Raises Damaged where the bytes are no message; the fields before have been given by then.
    """
    end = len(data) if end is None else end
    while offset < end:
        start = offset
        tag, offset = read_varint(data, offset, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise Damaged(start, "a field has number 0")
        if wire_type == VARINT:
            value, offset = read_varint(data, offset, end)
            yield Field(number, wire_type, value, start)
            continue
        if wire_type == BYTES:
            length, offset = read_varint(data, offset, end)
        elif wire_type in (FIXED64, FIXED32):
            length = 8 if wire_type == FIXED64 else 4
        else:
            raise Damaged(start, f"a field has the unknown wire type {wire_type}")
        if length > end - offset:
            raise Damaged(start, f"a field of {length} bytes reaches behind the end")
        piece = data[offset : offset + length]
        offset += length
        yield Field(
            number, wire_type, piece if wire_type == BYTES else int.from_bytes(piece, "little"), start
        )


def signed(value: int) -> int:
    """The int32 or int64 behind a varint's unsigned 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def as_double(value: int) -> float:
    """The double behind the eight bytes of a FIXED64 field."""
    return float(struct.unpack("<d", struct.pack("<Q", value))[0])


def as_float(value: int) -> float:
    """The float behind the four bytes of a FIXED32 field."""
    return float(struct.unpack("<f", struct.pack("<I", value))[0])
