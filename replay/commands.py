"""Command line of the replay part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import answer
from ..units import format_seconds

if TYPE_CHECKING:
    from .offline import Replay


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command()(replay)


def replay(
    trace: Annotated[Path, typer.Argument(help="Folder of a recorded or imported trace.")],
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
    """Play a recorded run again in the simulator and compare it with the recording.

    Example: vsketchdlc replay trace/ --aux 4 -o replayed/
    """
    from ..model.calibration import Calibration
    from ..tracer.trace import Trace
    from .offline import replay_offline

    recorded = Trace.open(trace)
    fitted = None if calibration is None else Calibration.load(calibration)
    result = replay_offline(recorded, fitted, aux=aux, output=output)
    if json_target:
        answer.write_json(json_target, _as_json(result))
    if not quiet and json_target != "-":
        _print(result, output)


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
