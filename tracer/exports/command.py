"""The ``export`` command."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ... import answer
from ...errors import UserError


class Format(str, Enum):
    """File formats that a trace can be written in."""

    CHROME = "chrome"


def export(
    trace: Annotated[Path, typer.Argument(help="Folder of the trace.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; .gz compresses.")],
    format: Annotated[Format, typer.Option("--format", "-f", help="What to write.")] = Format.CHROME,
    steps: Annotated[str | None, typer.Option(help="Only steps A:B, both included.", metavar="A:B")] = None,
    max_mb: Annotated[
        float, typer.Option(help="Size limit in MB before compression; 0 lifts it.", min=0.0)
    ] = 50.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Write a trace as a file for other viewers.

    Example: vsketchdlc export trace/ --format chrome -o trace.json.gz
    """
    from ..trace import Trace
    from .chrome import export_chrome
    from .clocks import groups_with_one_clock

    opened = Trace.open(trace)
    window = None if steps is None else _window(steps)
    limit_bytes = math.inf if max_mb == 0 else max_mb * 1e6
    groups, reason = groups_with_one_clock(opened)
    notes = [reason] if reason else []
    for group in groups:
        path = output if group.label is None else _beside(output, group.label)
        written = export_chrome(opened, path, limit_bytes=limit_bytes, steps=window, hosts=group.hosts)
        notes += [note for note in written.notes if note not in notes]
        if not quiet:
            answer.stdout.print(
                f"{written.path}: {written.slices:,} slices, {written.size_bytes / 1e6:.1f} MB"
            )
    if not quiet:
        for note in notes:
            answer.stderr.print(note)
        answer.stdout.print("open it at https://ui.perfetto.dev or chrome://tracing")


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
