"""The ``tune`` command: choose the lane count for the user's own command, then train with it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import answer
from ..units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from .tuning import Tuning


def tune(
    command: Annotated[
        list[str], typer.Argument(help="Your own launch command, after '--'.", metavar="-- CMD...")
    ],
    aux_max: Annotated[
        int | None, typer.Option(help="Largest lane count to consider.", min=1, max=64)
    ] = None,
    trial_steps: Annotated[int, typer.Option(help="Steps of the traced trial.", min=3, max=1000)] = 8,
    budget: Annotated[str, typer.Option(help="Time for the lane probe, e.g. 20s.")] = "20s",
    min_gain: Annotated[str, typer.Option(help="Keep stock Horovod below this gain, e.g. 3%.")] = "3%",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Keep trace, probe and calibration here.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the choice.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Also write the answer to FILE, or - for stdout.")
    ] = None,
) -> None:
    """Choose the number of lanes before training, then train with it.

    Runs a few steps of your command under stock Horovod, probes the lanes between your hosts, predicts the step
    time for each count, and starts your command with the best one. The trial sets VSKETCHDLC_TRIAL=1.

    Example: vsketchdlc tune -- mpirun -np 4 -H a,b,c,d python train.py
    """
    from .tuning import default_aux_max, tune

    gain = _fraction(min_gain)
    budget_s = parse_seconds(budget, what="probe budget")
    keep = output or Path(tempfile.mkdtemp(prefix="vsketchdlc-tune-"))
    keep.mkdir(parents=True, exist_ok=True)
    most = aux_max or default_aux_max(len(os.sched_getaffinity(0)))
    say = (lambda _: None) if quiet else (lambda line: print(f"vsketchdlc: {line}", file=sys.stderr))
    tuned = tune(
        command, keep, aux_max=most, trial_steps=trial_steps, probe_budget_s=budget_s, min_gain=gain, say=say
    )
    if json_target is not None:
        answer.write_json(json_target, as_json(tuned))
    if json_target != "-":
        _print(tuned)
    if dry_run:
        return
    sys.stdout.flush()
    words = [sys.executable, "-m", "vsketchdlc", "run", "--aux", str(tuned.choice.aux), "--", *command]
    os.execv(words[0], words)


def as_json(tuned: Tuning) -> dict[str, Any]:
    """The answer for programs: the choice, its reason, a row a count, and what tuning cost."""
    return {
        "chosen_aux": tuned.choice.aux,
        "reason": tuned.choice.reason,
        "predicted": [
            {
                "aux": aux,
                "step_s": row.step_s,
                "low_s": row.low_s,
                "high_s": row.high_s,
                "p5_s": row.p5_s,
                "p95_s": row.p95_s,
                "exposed_s": row.exposed_s,
            }
            for aux, row in enumerate(tuned.predictions)
        ],
        "tuning_s": tuned.seconds,
        "payback_steps": tuned.payback_steps,
        "folder": str(tuned.folder),
    }


def _fraction(text: str) -> float:
    from ..errors import UserError

    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UserError(f"--min-gain '{text}' is not understood: write it like 3% or 0.03, from 0 to below 1")
    return value


def _print(tuned: Tuning) -> None:
    from rich.table import Table

    table = Table("lanes a host", "predicted step", "90 % interval", "against stock")
    stock = tuned.predictions[0].step_s
    for aux, row in enumerate(tuned.predictions):
        mark = " <- chosen" if aux == tuned.choice.aux else ""
        interval = f"{format_seconds(row.low_s)} to {format_seconds(row.high_s)}"
        table.add_row(f"{aux}{mark}", format_seconds(row.step_s), interval, f"{stock / row.step_s:.2f} x")
    answer.stdout.print(table)
    answer.stdout.print(tuned.choice.reason)
    cost = f"Tuning took {format_seconds(tuned.seconds)}"
    if tuned.payback_steps is not None:
        cost += f"; earned back after {tuned.payback_steps} steps"
    answer.stdout.print(f"{cost}. Kept in {tuned.folder}: trace/, probe.json, calibration.json")
    answer.stdout.print(
        f"Next: vsketchdlc whatif {tuned.folder}/trace --calibration {tuned.folder}/calibration.json --aux 0:8"
    )
