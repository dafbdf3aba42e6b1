"""Columns of bytes, a whole batch of rows at once: what a file says of a million slices is joined from such columns.

All columns are Arrow arrays of binary values; a null is "nothing there". Joining them takes some 30 ns a value, which
a Python expression for each row would not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
Column: TypeAlias = "pa.Array | bytes"


def joined(columns: list[Column], between: bytes = b"") -> pa.Array:
    """Each row's values one after the other, `between` them; nulls are left out. One column at least is an array."""
    values: list[Any] = [pa.scalar(one, pa.binary()) if isinstance(one, bytes) else one for one in columns]
    return pc.binary_join_element_wise(*values, pa.scalar(between, pa.binary()), null_handling="skip")


def whole(column: pa.Array) -> bytes:
    """All values of `column`, one after the other; there must be no null."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    data = column.buffers()[2]
    return b"" if data is None else data.to_pybytes()[offsets[0] : offsets[-1]]


def lengths(column: pa.Array) -> Integers:
    """Bytes of each value, 0 for a null."""
    found: Integers = (
        pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return found


def of_each(values: pa.Array, encoded: Callable[[Any], bytes]) -> pa.Array:
    """`encoded` of each value, asked once for each different one; null for null."""
    coded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
    made = pa.array([encoded(value) for value in coded.dictionary.to_pylist()], pa.binary())
    return made.take(coded.indices)


def decimals(values: pa.Array) -> pa.Array:
    """Whole numbers as decimal text."""
    return pc.cast(pc.cast(values, pa.string()), pa.binary())


def thousandths(values: Integers) -> list[Column]:
    """Whole numbers of a thousandth each as text with three decimals; none may be negative."""
    whole_part, rest = np.divmod(values, 1000)
    return [decimals(pa.array(whole_part)), b".", _DECIMALS.take(pa.array(rest))]


_DECIMALS = pa.array([f"{number:03d}".encode() for number in range(1000)], pa.binary())


def varints(values: Integers, prefix: bytes = b"", absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Protocol buffers' variable-length numbers behind `prefix`, all as long as the longest needs; null where `absent`.

    Readers take a number with more bytes than it needs. A negative number is its 64-bit two's complement.
    """
    shifts = np.arange(0, 7 * varint_width(values), 7, dtype=np.uint64)
    groups = (values.astype(np.int64).view(np.uint64)[:, None] >> shifts) & np.uint64(127)
    groups[:, :-1] |= np.uint64(128)
    return _fixed(prefix, groups.astype(np.uint8), absent)


def varint_width(values: Integers) -> int:
    """Bytes that each of `varints` takes, without its prefix."""
    most = int(values.astype(np.int64).view(np.uint64).max()) if len(values) else 0
    return max(1, -(-most.bit_length() // 7))


def fixed64(values: Integers, prefix: bytes, absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Eight bytes of each number, the lowest first, behind `prefix`; null where `absent`."""
    return _fixed(prefix, values.astype("<i8").view(np.uint8).reshape(-1, 8), absent)


def _fixed(prefix: bytes, data: npt.NDArray[np.uint8], absent: npt.NDArray[np.bool_] | None) -> pa.Array:
    rows, width = len(data), len(prefix) + data.shape[1]
    cells = np.empty((rows, width), dtype=np.uint8)
    cells[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
    cells[:, len(prefix) :] = data
    valid = None if absent is None else pa.array(~absent).buffers()[1]
    fixed = pa.Array.from_buffers(pa.binary(width), rows, [valid, pa.py_buffer(cells)])
    return fixed.cast(pa.binary())


def grouped(values: pa.Array, encoded: Callable[[Integers], pa.Array]) -> pa.Array:
    """Of texts like ``"3,17"``: what `encoded` makes of the numbers, joined for each row; null for null.

    `encoded` must give values of one length.
    """
    parts = pc.split_pattern(values, ",")
    numbers = pc.cast(parts.flatten(), pa.int64()).to_numpy(zero_copy_only=False)
    cells = encoded(numbers) if len(numbers) else pa.array([], pa.binary())
    size = int(lengths(cells)[0]) if len(cells) else 0
    counts = pc.fill_null(pc.list_value_length(parts), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32) * size
    valid = pc.is_valid(values).cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(bool)
    made = pa.Array.from_buffers(
        pa.binary(),
        len(values),
        [pa.array(valid).buffers()[1], pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(whole(cells))],
    )
    return made
