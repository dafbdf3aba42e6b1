"""Command line of the replay part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import answer
from ..errors import UserError
from ..units import format_seconds

if TYPE_CHECKING:
    from ..model.calibration import Calibration
    from ..tracer.trace import Trace
    from .offline import Replay


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command(context_settings={"allow_interspersed_args": True})(replay)


def replay(
    trace: Annotated[Path, typer.Argument(help="Folder of a recorded or imported trace.")],
    launcher: Annotated[
        list[str] | None,
        typer.Argument(
            help="With --live: your launcher and its options, no program.", metavar="-- MPIRUN..."
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="On the wire: real Horovod, no model or GPU.")] = False,
    compute: Annotated[str, typer.Option(help="With --live: sleep, spin or mxnet.")] = "sleep",
    steps: Annotated[int, typer.Option(help="With --live: steps to run.", min=3)] = 12,
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration file; default: fitted to the trace.")
    ] = None,
    aux: Annotated[
        int | None, typer.Option(help="Lanes a host; default: as recorded.", min=0, max=64)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Keep the replayed run as a trace.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the answer's files, no table.")] = False,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Write the answer to FILE, or - for stdout.")
    ] = None,
) -> None:
    """Play a recorded run again, in the simulator or (--live) on the wire, and compare it with the recording.

    Example: vsketchdlc replay trace/ --aux 4 -o replayed/

    Example: vsketchdlc replay trace/ --live --aux 4 -- mpirun -np 4 -H a,b,c,d
    """
    from ..model.calibration import Calibration
    from ..tracer.trace import Trace
    from .offline import replay_offline

    recorded = Trace.open(trace)
    fitted = None if calibration is None else Calibration.load(calibration)
    if live:
        _live(recorded, fitted, launcher or [], aux or 0, steps, compute, json_target)
        return
    if launcher:
        raise UserError("a launcher is given but not --live: add --live, or leave out what stands after '--'")
    result = replay_offline(recorded, fitted, aux=aux, output=output)
    if json_target is not None:
        answer.write_json(json_target, _as_json(result))
    if not quiet and json_target != "-":
        _print(result, output)


def _live(
    recorded: Trace,
    fitted: Calibration | None,
    launcher: list[str],
    aux: int,
    steps: int,
    compute: str,
    json_target: str | None,
) -> None:
    from ..model.fitting import calibrate
    from ..model.recorded import recorded_scenario, workload_as_recorded
    from .live import replay_live
    from .live_plan import COMPUTE_KINDS
    from .offline import recorded_step_s

    if compute not in COMPUTE_KINDS:
        raise UserError(f"--compute '{compute}' is not one of {', '.join(COMPUTE_KINDS)}")
    if not launcher:
        raise UserError(
            "a live replay needs a launcher: put it after '--', as in '-- mpirun -np 4 -H a,b,c,d'"
        )
    if compute != "sleep":  # a busy thread meets contention again, so the recorded contention comes out first
        workload = recorded_scenario(recorded, fitted or calibrate(recorded)).workload
    else:
        workload = workload_as_recorded(recorded)
    result = replay_live(workload, launcher, aux=aux, steps=steps, compute=compute)
    step_s = recorded_step_s(recorded)
    same = aux == int(recorded.meta.settings.get("aux", 0) or 0) and result.ranks == recorded.meta.ranks
    if json_target is not None:
        answer.write_json(
            json_target,
            {
                "recorded_step_s": step_s,
                "replayed_step_s": result.step_s,
                "all_step_s": result.all_step_s,
                "ranks": result.ranks,
                "aux": aux,
                "compute": compute,
                "same_settings": same,
                "error": result.step_s / step_s - 1 if same else None,
            },
        )
    if json_target != "-":
        line = f"Step: recorded {format_seconds(step_s)}, replayed live {format_seconds(result.step_s)} with {aux} lanes"
        line += (
            f" ({100 * (result.step_s / step_s - 1):+.1f} %)"
            if same
            else f" ({step_s / result.step_s:.2f} x)"
        )
        answer.stdout.print(f"{line}, {result.ranks} ranks, compute is a {compute}")


def _as_json(result: Replay) -> dict[str, Any]:
    return {
        "recorded_step_s": result.recorded_step_s,
        "replayed_step_s": result.prediction.step_s,
        "low_s": result.prediction.low_s,
        "high_s": result.prediction.high_s,
        "aux": result.prediction.aux,
        "same_settings": result.same_settings,
        "error": result.error if result.same_settings else None,
        "phases": [vars(phase) for phase in result.phases],
    }


def _print(result: Replay, output: Path | None) -> None:
    from rich.table import Table

    table = Table(
        "kind", "recorded a step", "replayed a step", "difference", title="Seconds of a rank per step"
    )
    for phase in result.phases:
        table.add_row(
            phase.kind,
            _text(phase.recorded_s),
            _text(phase.replayed_s),
            _difference(phase.recorded_s, phase.replayed_s),
        )
    answer.stdout.print(table)
    step = f"Step: recorded {format_seconds(result.recorded_step_s)}, replayed {format_seconds(result.prediction.step_s)}"
    if result.same_settings:
        step += f" ({100 * result.error:+.1f} %)"
    else:
        step += (
            f" with {result.prediction.aux} lanes ({result.recorded_step_s / result.prediction.step_s:.2f} x)"
        )
    answer.stdout.print(step)
    if output is not None:
        answer.stdout.print(
            f"Written: {output}. Next: vsketchdlc export {output} --format chrome -o replayed.json"
        )


def _text(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _difference(recorded: float | None, replayed: float | None) -> str:
    if recorded is None or replayed is None or recorded == 0:
        return "-"
    return f"{100 * (replayed / recorded - 1):+.1f} %"
