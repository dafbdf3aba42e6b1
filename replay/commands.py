"""Command line of the replay part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import answer
from ..errors import UserError
from .by import By

if TYPE_CHECKING:
    from ..tracer.trace import Trace


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command(context_settings={"allow_interspersed_args": True})(replay)


def live_trial(source: str, command: Sequence[str]) -> Callable[[Path, int], Trace]:
    """The trial of `tune --live-replay`, see `trial`."""
    from .trial import live_trial

    return live_trial(source, command)


def replay(
    trace: Annotated[
        str | None, typer.Argument(help="Folder of a recorded or imported trace.", show_default=False)
    ] = None,
    launcher: Annotated[
        list[str] | None,
        typer.Argument(
            help="With --live: your launcher and its options, no program.", metavar="-- MPIRUN..."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A catalogue network instead of a trace.")] = None,
    gpu: Annotated[str, typer.Option(help="Device of --model: k80, p100, v100.")] = "v100",
    aux: Annotated[
        int | None, typer.Option(help="Lanes a host; default: as recorded.", min=0, max=64)
    ] = None,
    scale: Annotated[float, typer.Option(help="Gradients so many times as large.")] = 1.0,
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration file; default: fitted to the trace.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Offline: any knob, cluster or cost, e.g. cycle_s=5ms.", metavar="KEY=VALUE"
        ),
    ] = None,
    by: Annotated[By, typer.Option(help="Offline: what the table lists.")] = By.KIND,
    diff: Annotated[
        Path | None,
        typer.Option(help="Offline: both in BASE.json (Perfetto) and BASE.html.", metavar="BASE"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Keep the replayed run as a trace.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="On the wire: real Horovod, no model or GPU.")] = False,
    hosts: Annotated[
        str | None, typer.Option(help="Live: these hosts, in place of a launcher.", metavar="A,B,...")
    ] = None,
    compute: Annotated[str, typer.Option(help="Live: sleep, spin or mxnet.")] = "sleep",
    threads: Annotated[
        int | None, typer.Option(help="Live: busy threads of spin; default: as recorded.", min=1, max=1024)
    ] = None,
    steps: Annotated[int, typer.Option(help="Live: steps to run.", min=3)] = 12,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the answer's files, no table.")] = False,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Write the answer to FILE, or - for stdout.")
    ] = None,
) -> None:
    """Play a recorded run again, in the simulator or (--live) on the wire, and compare it with the recording.

    Example: vsketchdlc replay trace/ --set flow_cap_bits_per_s=2Gbit/s --diff replayed

    Example: vsketchdlc replay trace/ --live --aux 4 -- mpirun -np 4 -H a,b,c,d
    """
    words = list(launcher or [])
    if model is not None and trace is not None:
        words.insert(0, trace)  # with --model the first word after '--' is the launcher's
        trace = None
    source = model or trace
    if source is None:
        raise UserError("give a trace's folder or --model NAME: vsketchdlc replay trace/")
    if live:
        from .live_command import LiveWishes, replay_on_the_wire

        if settings or output or diff:
            raise UserError("--set, --diff and -o belong to the simulator; leave them out with --live")
        wishes = LiveWishes(source, gpu, aux, scale, calibration, compute, threads, steps, hosts)
        replay_on_the_wire(wishes, words, json_target)
        return
    if words or hosts:
        raise UserError("a launcher or --hosts is given but not --live: add --live, or leave it out")
    if model is not None:
        raise UserError(
            f"nothing is recorded of --model {model}: add --live, or ask 'vsketchdlc whatif --model {model}'"
        )
    _offline(Path(source), calibration, aux, scale, settings or [], by, diff, output, json_target, quiet)


def _offline(
    folder: Path,
    calibration: Path | None,
    aux: int | None,
    scale: float,
    settings: list[str],
    by: By,
    diff: Path | None,
    output: Path | None,
    json_target: str | None,
    quiet: bool,
) -> None:
    import tempfile

    from ..model.calibration import Calibration
    from ..tracer.trace import Trace
    from .offline import replay_offline
    from .offline_output import as_json, show

    recorded = Trace.open(folder)
    fitted = None if calibration is None else Calibration.load(calibration)
    with tempfile.TemporaryDirectory() as scratch:
        target = output or Path(scratch) / "replayed"
        result = replay_offline(recorded, fitted, aux=aux, scale=scale, settings=settings, output=target)
        written = []
        if diff is not None:
            from .diff import write_diff

            written = write_diff(result, recorded, Trace.open(target), diff)
    if json_target is not None:
        answer.write_json(json_target, as_json(result))
    if quiet or json_target == "-":
        return
    show(result, by, answer.stdout)
    if output is not None:
        answer.stdout.print(
            f"Written: {output}. Next: vsketchdlc export {answer.typed(output)} --format chrome -o replayed.json"
        )
    if written:
        answer.stdout.print(f"Written: {written[0]} (open it at https://ui.perfetto.dev), {written[1]}")
