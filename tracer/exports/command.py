"""The ``export`` command."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import answer
from ...errors import UserError

if TYPE_CHECKING:
    from ..trace import Trace
    from .whole_file import WrittenFile


class Format(str, Enum):
    """File formats that a trace can be written in."""

    CHROME = "chrome"
    PERFETTO = "perfetto"
    PERFETTO_ARCHIVE = "perfetto-archive"
    CHAKRA = "chakra"


_NEXT = {
    Format.CHROME: "open it at https://ui.perfetto.dev or chrome://tracing",
    Format.PERFETTO: "open it at https://ui.perfetto.dev",
    Format.PERFETTO_ARCHIVE: "open it at https://ui.perfetto.dev",
    Format.CHAKRA: "give them to ASTRA-sim or chakra_visualizer",
}


def export(
    trace: Annotated[Path, typer.Argument(help="Folder of the trace.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; .gz compresses; chakra: FILE.<rank>.et.")
    ],
    format: Annotated[Format, typer.Option("--format", "-f", help="What to write.")] = Format.CHROME,
    steps: Annotated[str | None, typer.Option(help="Only steps A:B, both included.", metavar="A:B")] = None,
    max_mb: Annotated[
        float | None,
        typer.Option(help="Limit in MB before compression; 0: none. Chrome 50, Perfetto 200.", min=0.0),
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write what was written, as JSON.", metavar="FILE|-")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Write a trace as a file for other viewers and simulators.

    Example: vsketchdlc export trace/ --format chrome -o trace.json.gz
    """
    from ..trace import Trace

    files, notes = _write(
        Trace.open(trace), output, format, None if steps is None else _window(steps), max_mb
    )
    if json is not None:
        rows = [{"path": str(file.path), "count": file.count, "bytes": file.size_bytes} for file in files]
        answer.write_json(json, {"format_version": 1, "format": format.value, "files": rows, "notes": notes})
    if quiet:
        return
    if json != "-":
        unit = "nodes" if format is Format.CHAKRA else "slices"
        for file in files:
            answer.stdout.print(f"{file.path}: {file.count:,} {unit}, {file.size_bytes / 1e6:.1f} MB")
        answer.stdout.print(_NEXT[format])
    for note in notes:
        answer.stderr.print(note)


def _write(
    trace: Trace, output: Path, format: Format, steps: tuple[int, int] | None, max_mb: float | None
) -> tuple[list[WrittenFile], list[str]]:
    """Write all files of one export; returns them and the sentences on what was left out."""
    from . import archive, chrome, perfetto
    from .chakra import export_chakra
    from .clocks import groups_with_one_clock

    if format is Format.CHAKRA:
        return export_chakra(trace, output, steps=steps), []
    write, limit_bytes = {
        Format.CHROME: (chrome.export_chrome, chrome.DEFAULT_LIMIT_BYTES),
        Format.PERFETTO: (perfetto.export_perfetto, perfetto.DEFAULT_LIMIT_BYTES),
        Format.PERFETTO_ARCHIVE: (archive.export_archive, perfetto.DEFAULT_LIMIT_BYTES),
    }[format]
    limit = limit_bytes if max_mb is None else max_mb * 1e6 or math.inf
    groups, reason = groups_with_one_clock(trace)
    notes = [reason] if reason else []
    files = []
    for group in groups:
        path = output if group.label is None else _beside(output, group.label)
        file = write(trace, path, limit_bytes=limit, steps=steps, hosts=group.hosts)
        files.append(file)
        notes += [note for note in file.notes if note not in notes]
    return files, notes


def _window(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        window = (int(first), int(last if colon else first))
    except ValueError:
        raise UserError(f"--steps '{text}' is not understood: write it like 10:30") from None
    if window[0] > window[1]:
        raise UserError(f"--steps {text} is empty: the first step must not be above the last")
    return window


def _beside(path: Path, label: str) -> Path:
    """``run.json.gz`` with label ``h1`` becomes ``run.h1.json.gz``."""
    stem, dot, ending = path.name.partition(".")
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in label)
    return path.with_name(f"{stem}.{safe}{dot}{ending}")
