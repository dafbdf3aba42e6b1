"""The ``collect`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import answer


def collect(
    recording: Annotated[Path, typer.Argument(help="Folder of the raw logs, as 'trace' printed it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the trace.")] = Path("trace"),
    hosts: Annotated[
        str | None, typer.Option("--hosts", "-H", help="Hosts to fetch from.", metavar="A,B,...")
    ] = None,
    rsh: Annotated[str, typer.Option(help="Remote shell.")] = "ssh -o BatchMode=yes",
    json: Annotated[
        str | None, typer.Option("--json", help="Write the outcome to FILE, or - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Complete a trace whose ranks were killed before their logs came home.

    Example: vsketchdlc collect /tmp/vsketch-0-x1y2z3 -H b,c -o trace
    """
    from .collecting import collect as fetch

    def say(line: str) -> None:
        if not quiet:
            answer.stderr.print(f"vsketchdlc: {line}")

    chosen = [host for host in (hosts or "").split(",") if host]
    outcome = fetch(recording, output, chosen, rsh, say)
    for line in [*outcome.problems, *outcome.trace.meta.notes]:
        answer.stderr.print(f"vsketchdlc: {line}")
    if json is not None:
        answer.write_json(
            json,
            {
                "trace": str(output),
                "problems": outcome.problems,
                "missing_ranks": outcome.trace.meta.missing_ranks,
            },
        )
    say(f"written: {output}/   next: vsketchdlc report {answer.typed(output)}")
