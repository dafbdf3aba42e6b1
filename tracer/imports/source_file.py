"""The bytes of a file that is to be imported: decompressed as far as it goes, never larger than is sane."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UserError

FREE_BYTES = 64 << 20
"""A file may always unpack to this much."""

LARGEST_RATIO = 200
"""Beyond `FREE_BYTES`, what unpacks to more than this many times its size is no trace (they reach about 30)."""

_CHUNK = 1 << 20


@dataclass
class SourceFile:
    """One input file: its bytes and what had to be repaired to get them."""

    path: Path
    data: bytes
    repairs: list[str] = field(default_factory=list)

    def unreadable(self, offset: int, reason: str) -> UserError:
        """The error for a file that cannot be used; `offset` counts bytes of the unpacked data."""
        return UserError(
            f"cannot import {self.path}: {reason} (byte offset {offset}); check the file or export it again"
        )


def read_source(path: Path) -> SourceFile:
    """Read `path`, unpacking gzip.

    Raises UserError when it cannot be read, is empty, or is gzip from which nothing comes.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    source = SourceFile(path, raw)
    if raw[:2] == b"\x1f\x8b":
        source.data = _unpacked(source, raw)
    if not source.data:
        raise source.unreadable(0, "it is empty")
    if source.data[257:262] == b"ustar":
        raise UserError(
            f"{path} is a tar archive: unpack it first, with 'tar -xf {path}', and import its files"
        )
    return source


def _unpacked(source: SourceFile, raw: bytes) -> bytes:
    """All gzip members of `raw`, as far as they can be unpacked."""
    limit = max(FREE_BYTES, LARGEST_RATIO * len(raw))
    pieces: list[bytes] = []
    size = 0
    rest = raw
    while rest[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(wbits=31)
        try:
            while rest and not unpacker.eof:
                piece = unpacker.decompress(rest, _CHUNK)
                rest = unpacker.unconsumed_tail
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise UserError(
                        f"cannot import {source.path}: it unpacks to more than {limit / 1e6:.0f} MB; unpack it yourself"
                    )
        except zlib.error:
            source.repairs.append(f"damaged gzip, {size:,} bytes could be unpacked")
            break
        if not unpacker.eof:
            source.repairs.append(f"gzip cut short, {size:,} bytes could be unpacked")
            break
        rest = unpacker.unused_data
    if not size:
        raise source.unreadable(0, "no data can be unpacked from this gzip")
    return b"".join(pieces)
