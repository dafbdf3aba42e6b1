"""``vsketchdlc calibrate``: find the model's costs from a trace, or check them on another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .calibration import Calibration


def calibrate_command(
    trace: Annotated[Path, typer.Argument(help="Folder of a recorded trace.")],
    probe: Annotated[Path | None, typer.Option("--probe", help="Lane probe (JSON) made beside it.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")] = Path(
        "calibration.json"
    ),
    cores: Annotated[float | None, typer.Option("--cores", help="Cores of one host for the job.")] = None,
    check: Annotated[
        list[Path] | None, typer.Option("--check", help="Trace it is not fitted to: tell the error there.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Page with residuals by kind of event.")] = None,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Also as JSON to FILE, or - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Find the model's costs (what moving and adding a byte takes, and more) from a trace.

    Example: vsketchdlc calibrate trace/ --probe probe.json -o calibration.json
    """
    from .. import answer
    from ..errors import UserError
    from ..tracer.trace import Trace
    from .fitting import calibrate
    from .probe import LaneProbe

    if cores is not None and not 0.001 <= cores <= 4096:
        raise UserError(f"cores is {cores}; it must lie between 0.001 and 4096")
    others = [Trace.open(path) for path in check or []]
    calibration = calibrate(Trace.open(trace), LaneProbe.load(probe) if probe else None, cores=cores)
    calibration.save(output)
    checks = [_checked(other, calibration) for other in others]
    if html:
        from .residual_plot import residual_page

        answer.write_text_whole(html, residual_page(calibration))
    if json_target is not None:
        answer.write_json(json_target, {**calibration.to_json(), "checks": checks})
    if quiet or json_target == "-":
        return
    _print(calibration)
    for one in checks:
        answer.stdout.print(
            f"check on {one['trace']}: predicted {one['predicted_s']:.3f} s, recorded {one['recorded_s']:.3f} s, "
            f"error {one['error']:+.1%}, {'inside' if one['inside'] else 'outside'} the 90 % interval"
        )
    written = f"{output} and {html}" if html else str(output)
    answer.stdout.print(
        f"written: {written}   next: vsketchdlc whatif {answer.typed(trace)} --calibration {answer.typed(output)} --aux 0:8"
    )


def _checked(trace: object, calibration: Calibration) -> dict[str, object]:
    """Predicted against recorded step time of a run the calibration has not seen."""
    from ..tracer.trace import Trace
    from .observations import observe
    from .prediction import predict
    from .recorded import recorded_scenario

    assert isinstance(trace, Trace)
    seen = observe(trace)
    prediction = predict(recorded_scenario(trace, calibration, seen))
    recorded_s = seen.step_s
    return {
        "trace": str(trace.path),
        "recorded_s": recorded_s,
        "predicted_s": prediction.step_s,
        "low_s": prediction.low_s,
        "high_s": prediction.high_s,
        "error": prediction.step_s / recorded_s - 1,
        "inside": prediction.low_s <= recorded_s <= prediction.high_s,
    }


def _print(calibration: Calibration) -> None:
    from rich.table import Table

    from .. import answer
    from .parameters import INFO

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("parameter", "value", "90 % interval", "unit", "known"):
        table.add_column(column, no_wrap=True)
    for name, entry in calibration.entries.items():
        bounds = f"{entry.low:.3g} - {entry.high:.3g}"
        table.add_row(name, f"{entry.value:.4g}", bounds, entry.unit, "yes" if entry.identified else "prior")
    answer.stdout.print(table)
    for kind, values in calibration.residuals.items():
        worst = max(values, key=abs)
        answer.stdout.print(f"fit error of {kind}: worst {worst:+.1%} of {len(values)}")
    if calibration.disturbed:
        answer.stdout.print(f"disturbed: {calibration.disturbed}")
    for note in calibration.notes:
        answer.stdout.print(f"note: {note}")
    meanings = [n for n, e in calibration.entries.items() if not e.identified and n in INFO]
    if meanings:
        answer.stdout.print("what they mean: docs/model.md")
