"""How a command answers: tables on stdout, progress on stderr, JSON and files written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

from .errors import UserError

READER_LEFT = 141
"""Exit status when the reader of a pipe has left (``| head -1``): what a shell calls death by SIGPIPE."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `guarded_output`; rich would exit with status 1, which means bad news here."""
        raise BrokenPipeError


stdout = _Console(highlight=False, soft_wrap=True)
stderr = _Console(stderr=True, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def guarded_output() -> Iterator[None]:
    """Around a whole command: a pipe whose reader has left ends it with status 141 and without a word.

    Raises UserError when stdout is a file on a full disk.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:  # click turns a broken pipe into exit status 1
        if (isinstance(end, SystemExit) and end.code != 1) or not _reader_has_left():
            raise
        _forget_stdout()
        raise SystemExit(READER_LEFT) from None
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
            raise
        _forget_stdout()
        raise UserError(
            f"cannot write the answer: {error.strerror}; free some space, or name a file with --json"
        ) from None


def _reader_has_left() -> bool:
    """Whether stdout or stderr is a pipe without a reader; a broken pipe elsewhere is a fault of ours."""
    ends = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            ends.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in ends.poll(0))


def _forget_stdout() -> None:
    """What is still buffered goes nowhere, or the interpreter would complain when it ends."""
    with contextlib.suppress(OSError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def typed(path: Path | str) -> str:
    """`path` as one types it in a shell: in quotes where it needs them, for the next command that an answer names."""
    return shlex.quote(str(path))


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
        print(text, end="")
    else:
        write_text_whole(Path(target), text)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
