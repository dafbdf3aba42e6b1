"""The ``import`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ... import answer
from .foreign_format import ForeignFormat


def import_(
    files: Annotated[
        list[Path], typer.Argument(help="Files of one run, or folders of them.", metavar="FILE...")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the trace to write.")] = Path(
        "trace"
    ),
    format: Annotated[
        ForeignFormat | None,
        typer.Option("--format", "-f", help="What the files are; found out if not given."),
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write what was imported, as JSON.", metavar="FILE|-")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Make a trace of another tool's files: Horovod timeline, MXNet profiler, Kineto, Chakra.

    Example: vsketchdlc import rank0.json.gz rank1.json.gz -o trace/
    """
    from ..trace import check_target, write_trace
    from .reading import read_foreign

    check_target(output)
    imported = read_foreign(files, format)
    trace = write_trace(output, imported.meta, imported.rows.events(), imported.rows.samples())
    meta = trace.meta
    if json is not None:
        row = {"path": str(output), "source": meta.source, "events": len(imported.rows), "ranks": meta.ranks}
        answer.write_json(json, {"format_version": 1, **row, "notes": meta.notes})
    if quiet:
        return
    for note in meta.notes:
        answer.stderr.print(note)
    if json != "-":
        answer.stdout.print(
            f"{output}: {len(imported.rows):,} events of {meta.ranks} ranks from {meta.source[9:]}"
        )
        answer.stdout.print(f"next: vsketchdlc export {answer.typed(output)} -o trace.json")
