"""The ``demo`` command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import answer
from ..units import format_seconds

if TYPE_CHECKING:
    from .demo import DemoResult


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the demo's files.")] = Path(
        "demo-out"
    ),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Also write the result to FILE, or - for stdout.")
    ] = None,
) -> None:
    """Run the whole loop on this machine: trace, calibrate, choose, train for real, compare.

    Takes under five minutes on two cores. Example: vsketchdlc demo -o demo-out
    """
    from .demo import run_demo
    from .demo_page import demo_page

    say = (lambda _: None) if quiet else (lambda line: print(f"demo: {line}", file=sys.stderr, flush=True))
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    result = run_demo(output, say)
    trace = output / "trace"
    _vsketchdlc("export", str(trace), "--format", "chrome", "-o", str(output / "trace.json"))
    breakdown = _vsketchdlc("report", str(trace))
    answer.write_json(str(output / "result.json"), result.to_json())
    answer.write_text_whole(output / "report.html", demo_page(result, breakdown))
    if json_target is not None:
        answer.write_json(json_target, result.to_json())
    if json_target != "-":
        _print(result, output)


def _vsketchdlc(*words: str) -> str:
    command = [sys.executable, "-m", "vsketchdlc", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _print(result: DemoResult, output: Path) -> None:
    from rich.table import Table

    stock = result.measured_at(0).step_s
    table = Table(
        "lanes a host", "predicted", "measured", "error", "against stock", title=f"AlexNet, {result.lab}"
    )
    for run in result.measured:
        mark = " <- chosen" if run.aux == result.chosen_aux else ""
        predicted = format_seconds(result.predicted[run.aux].step_s)
        error = f"{100 * result.error_at(run.aux):+.1f} %"
        table.add_row(
            f"{run.aux}{mark}", predicted, format_seconds(run.step_s), error, f"{stock / run.step_s:.2f} x"
        )
    answer.stdout.print(table)
    answer.stdout.print(result.reason)
    answer.stdout.print(
        f"Speed-up over stock Horovod {result.speedup:.2f}; mean absolute error {100 * result.mean_abs_error:.1f} %; "
        f"regret {100 * result.regret:.1f} %."
    )
    for sentence in result.limits:
        answer.stdout.print(f"Limit: {sentence}")
    answer.stdout.print(
        f"Written: {output}/result.json, report.html, trace.json (open it in ui.perfetto.dev), trace/, calibration.json"
    )
    answer.stdout.print(
        f"Next: vsketchdlc whatif {answer.typed(output / 'trace')} "
        f"--calibration {answer.typed(output / 'calibration.json')} --aux 0:8 --nic 10,25,100"
    )
