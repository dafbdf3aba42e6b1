"""How a command answers: tables on stdout, progress on stderr, JSON and files written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

from .errors import UserError

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing bytes; a reader sees the old file or the complete new one, never half of it.

    A link keeps pointing to its file; a device or pipe (``/dev/stdout``) is written as it comes. Raises UserError when
    `path` is a folder, its folder is missing or not writable, or space runs out.
    """
    with _told(path, "choose another place"):
        if path.is_dir():
            raise UserError(f"cannot write {path}: it is a folder; name a file in it")
        target = path.resolve()
        if path.parts[:2] in (("/", "dev"), ("/", "proc")) or (target.exists() and not target.is_file()):
            with path.open("wb") as device:
                yield device
            return
    with _told(path, "choose another place with a writable folder"):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".vsketchdlc.")
    temporary = Path(name)
    try:
        with _told(path, "free some space or choose another place"):
            with os.fdopen(handle, "wb") as file:
                yield file
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _told(path: Path, remedy: str) -> Iterator[None]:
    """Turn what the system says about `path` into one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {remedy}") from None


def write_text_whole(path: Path, text: str) -> None:
    """Write `text` to `path` as one `whole_file`.

    Raises UserError when the folder is missing or not writable.
    """
    with whole_file(path) as file:
        file.write(text.encode())


def write_json(target: str, data: Any) -> None:
    """Write `data` as JSON to the file `target`, or to stdout when it is ``"-"``."""
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        write_text_whole(Path(target), text)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
