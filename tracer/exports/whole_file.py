"""A file that appears whole or not at all, compressed when its name ends in ``.gz``."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ...errors import UserError


@dataclass(frozen=True)
class WrittenFile:
    """One exported file: how many slices or nodes it holds, its size before compression, what was left out."""

    path: Path
    count: int
    size_bytes: int
    notes: list[str]


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing bytes; an older file there stays until the new one is complete.

    Raises UserError when the folder is missing or not writable, or space runs out.
    """
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder; name a file in it")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; choose another place with a writable folder"
        ) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=4, mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield raw
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; free some space or choose another place"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
