"""How a command answers: tables on stdout, progress on stderr, JSON and files written whole or not at all."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from .errors import UserError

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def write_text_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never half of it.

    Raises UserError when the folder is missing or not writable.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; choose another place with a writable folder"
        ) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(
                f"cannot write {path}: {error.strerror}; free some space or choose another place"
            ) from None
        raise


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
