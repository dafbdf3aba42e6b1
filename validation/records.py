"""The log of a suite: one JSON line for each thing that happened, appended when it did, so that a stop loses little.

The first line says which suite, vsketchdlc and machine it is of. Then, in the order of time, lines of the kinds
``calibration``, ``prediction`` (before any run it predicts), ``run`` and ``failed``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError
from .suite import Suite

FORMAT_VERSION = 1
FILE_NAME = "results.jsonl"


class Records:
    """The lines of ``results.jsonl`` in a folder, and a place to append to."""

    def __init__(self, path: Path, lines: list[dict[str, Any]]) -> None:
        self.path = path
        self.lines = lines

    @classmethod
    def open(cls, folder: Path, suite: Suite, say: Callable[[str], None]) -> Records:
        """Go on with the log in `folder`, or begin one; `say` is told of a half-written line, which is dropped.

        Raises UserError when the log is of another suite, another version, or damaged.
        """
        path, head = folder / FILE_NAME, _head(suite)
        if not path.exists():
            records = cls(path, [])
            records.append(head)
            return records
        lines = _whole_lines(path, say)
        if not lines:
            path.unlink()
            return cls.open(folder, suite, say)
        _same(lines[0], head, path)
        if len(lines) > 1:
            say(f"going on with {path}: {sum(line['kind'] == 'run' for line in lines)} runs are there")
        return cls(path, lines)

    @classmethod
    def read(cls, folder: Path, suite: Suite) -> Records:
        """The log in `folder` as it is, for its answer only; raises UserError as `open` does, and when there is none."""
        path = folder / FILE_NAME
        if not path.exists():
            raise UserError(f"{folder} has no {FILE_NAME}; leave out --report to run the suite first")
        lines = _whole_lines(path, lambda _: None, mend=False)
        if not lines:
            raise UserError(f"{path} is empty; leave out --report to run the suite first")
        _same(lines[0], _head(suite), path)
        return cls(path, lines)

    def append(self, line: dict[str, Any]) -> None:
        """Add a line and have it on the disk before anything else happens."""
        stamped = {**line, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(stamped, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}; free some space, then go on"
            ) from None
        self.lines.append(stamped)

    def of(self, kind: str, **values: object) -> list[dict[str, Any]]:
        """The lines of that kind whose fields have these values, oldest first."""
        return [
            line
            for line in self.lines
            if line["kind"] == kind and all(line.get(name) == value for name, value in values.items())
        ]


def _head(suite: Suite) -> dict[str, Any]:
    return {
        "kind": "suite",
        "format_version": FORMAT_VERSION,
        "suite": suite.name,
        "digest": suite.digest,
        "vsketchdlc": __version__,
        "cores": os.cpu_count(),
    }


def _whole_lines(path: Path, say: Callable[[str], None], *, mend: bool = True) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    lines: list[dict[str, Any]] = []
    raw = text.splitlines(keepends=True)
    for number, line in enumerate(raw, 1):
        try:
            data = json.loads(line) if line.endswith("\n") else None
        except ValueError:
            data = None
        if isinstance(data, dict) and isinstance(data.get("kind"), str):
            lines.append(data)
        elif number == len(raw):
            say(f"the last line of {path} is half-written: it is dropped and its run done again")
            if mend:
                path.write_text("".join(raw[:-1]), encoding="utf-8")
        else:
            raise UserError(
                f"{path}: line {number} is damaged; remove the line, or choose another folder with -o"
            )
    return lines


def _same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    for key, what in (
        ("format_version", "format"),
        ("suite", "suite"),
        ("digest", "content of the suite file"),
        ("vsketchdlc", "vsketchdlc"),
        ("cores", "number of cores of this machine"),
    ):
        if found.get(key) != wanted[key]:
            was, now = (str(side.get(key))[:12] for side in (found, wanted))
            raise UserError(
                f"{path} was begun with another {what} ({was}, now {now}); choose another folder with -o"
            )
