"""The ``trace`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import answer
from ..errors import UserError


def trace(
    command: Annotated[
        list[str], typer.Argument(help="Your own command, after '--'.", metavar="-- COMMAND...")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the trace.")] = Path("trace"),
    steps: Annotated[str | None, typer.Option(help="Record steps A <= s < B only.", metavar="A:B")] = None,
    every: Annotated[int, typer.Option(help="Of those, record every Nth.", min=1, metavar="N")] = 1,
    max_mb: Annotated[float, typer.Option(help="Size limit of a rank's logs, MB.", min=1.0)] = 1000.0,
    stop_after: Annotated[
        int | None, typer.Option(help="End all ranks together after N steps.", min=1, metavar="N")
    ] = None,
    armed: Annotated[
        bool,
        typer.Option(
            help="Record nothing until start_trace() or SIGUSR2 to this command; SIGUSR2 again stops."
        ),
    ] = False,
    kvstore: Annotated[
        str | None,
        typer.Option(help="Start an MXNet KVStore job of N workers and M servers.", metavar="NxM"),
    ] = None,
    hosts: Annotated[
        str | None, typer.Option("--hosts", "-H", help="Hosts of the KVStore job.", metavar="A,B,...")
    ] = None,
    rsh: Annotated[str, typer.Option(help="Remote shell for the KVStore job.")] = "ssh -o BatchMode=yes",
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for raw logs, on the local disk of every host.")
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write the outcome to FILE, or - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> int:
    """Run your command and record where every gradient waits and travels.

    Example: vsketchdlc trace -o trace -- mpirun -np 4 -H a,b,c,d python train.py
    """
    from .kvstore_job import KvJob
    from .recording import RecordingOptions, record

    if hosts is not None and kvstore is None:
        raise UserError("-H belongs to --kvstore; hosts of an MPI job stand in your own command")
    job = None if kvstore is None else KvJob.parse(kvstore, hosts, rsh)
    first, last = (None, None) if steps is None else _window(steps)
    options = RecordingOptions(first, last, every, round(max_mb * 1e6), stop_after, armed, scratch, job)
    words = command[1:] if command[:1] == ["--"] else command

    def say(line: str) -> None:
        if not quiet:
            answer.stderr.print(f"vsketchdlc: {line}")

    recorded = record(words, output, options, say)
    for note in recorded.notes:
        answer.stderr.print(f"vsketchdlc: {note}")
    if recorded.trace is None:
        return recorded.status or 2
    if recorded.status != 0:
        say(f"the command ended with status {recorded.status}; what was recorded until then is kept")
    if recorded.kept is not None:
        answer.stderr.print(
            f"vsketchdlc: the raw logs stay in {recorded.kept}; fetch the other hosts' with: "
            f"vsketchdlc collect {recorded.kept} -o {output}"
        )
    if json is not None:
        answer.write_json(json, {"trace": str(output), "status": recorded.status, "notes": recorded.notes})
    if not quiet:
        answer.stderr.print(
            f"vsketchdlc: written: {output}/   next: vsketchdlc report {answer.typed(output)}"
        )
    return recorded.status


def _window(text: str) -> tuple[int | None, int | None]:
    first, colon, last = text.partition(":")
    try:
        window = (int(first) if first else None, int(last) if last else None)
    except ValueError:
        window = (0, 0)
    if not colon or (window[0] or 0) < 0 or (window[1] is not None and window[1] <= (window[0] or 0)):
        raise UserError(f"--steps '{text}' is not understood: write A:B with A < B, like 10:30")
    return window
