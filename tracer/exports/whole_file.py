"""Exported files: whole or not at all, compressed when the name ends in ``.gz``."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ...answer import whole_file


@dataclass(frozen=True)
class WrittenFile:
    """One exported file: how many slices or nodes it holds, its size before compression, what was left out."""

    path: Path
    count: int
    size_bytes: int
    notes: list[str]


@contextlib.contextmanager
def export_file(path: Path) -> Iterator[BinaryIO]:
    """`path` as a `whole_file`, packed with gzip when its name says so; the same data gives the same bytes."""
    with whole_file(path) as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=4, mtime=0) as packed:
            yield cast(BinaryIO, packed)
