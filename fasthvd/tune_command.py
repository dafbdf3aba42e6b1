"""The ``tune`` command: choose the lane count for the user's own command, then train with it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import answer
from ..errors import UserError
from ..units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from .trial import Trial
    from .tuning_answer import TuningAnswer

LiveTrial = Callable[[str, Sequence[str]], "Trial"]
"""A trial without the script, from a trace's folder or a catalogue network's name and the launch command."""

_live_trial: LiveTrial | None = None


def set_live_trial(maker: LiveTrial) -> None:
    """What --live-replay uses: replay stands above this part, so it is handed in (by `cli`)."""
    global _live_trial
    _live_trial = maker


def tune(
    command: Annotated[
        list[str], typer.Argument(help="Your own launch command, after '--'.", metavar="-- CMD...")
    ],
    aux_max: Annotated[
        int | None, typer.Option(help="Largest lane count to consider.", min=1, max=64)
    ] = None,
    all_knobs: Annotated[
        bool, typer.Option("--all-knobs", help="Choose Horovod's fusion threshold and cycle time too.")
    ] = False,
    trial_steps: Annotated[int, typer.Option(help="Steps of the traced trial.", min=4, max=1000)] = 8,
    live_replay: Annotated[
        str | None,
        typer.Option(
            help="Trial without your script: replay a trace, or a catalogue network.", metavar="TRACE"
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for tuning: the lane probe is cut to fit.")] = "60s",
    min_gain: Annotated[str, typer.Option(help="Keep stock Horovod below this gain, e.g. 3%.")] = "3%",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither reuse an earlier tuning nor keep this one.")
    ] = False,
    iface: Annotated[
        str, typer.Option(help="Interfaces or networks, e.g. eth0.", envvar="FASTHVD_IFACE")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Keep trace, probe and calibration here.")
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Learn from the first real steps, for the next run.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply/--dry-run", help="Train, or only print the choice.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Also write the answer to FILE, or - for stdout.")
    ] = None,
) -> int:
    """Choose the number of lanes before training, then train with it.

    Runs a few steps of your command under stock Horovod, probes the lanes between your hosts, predicts the step
    time for each count, and starts your command with the best one. The trial sets VSKETCHDLC_TRIAL=1.

    Example: vsketchdlc tune -- mpirun -np 4 -H a,b,c,d python train.py
    """
    from .training import train, train_and_adapt
    from .tuning import TuningWishes, default_aux_max, tune

    wishes = TuningWishes(
        aux_max=aux_max or default_aux_max(len(os.sched_getaffinity(0))),
        trial_steps=trial_steps,
        budget_s=parse_seconds(budget, what="--budget"),
        min_gain=_fraction(min_gain),
        all_knobs=all_knobs,
        use_cache=not no_cache,
        iface=iface,
        source=live_replay or "",
    )
    if not 1 <= wishes.budget_s <= 86400:
        raise UserError(f"--budget {wishes.budget_s:g} s is not possible: choose 1s to 86400s")
    trial = None if live_replay is None else _maker()(live_replay, command)
    keep = output or Path(tempfile.mkdtemp(prefix="vsketchdlc-tune-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {keep}: {error.strerror}; choose another folder with -o") from None

    def say(line: str) -> None:
        if not quiet:
            print(f"vsketchdlc: {line}", file=sys.stderr)

    try:
        tuned = tune(command, keep, wishes, trial=trial, say=say)
    except (KeyboardInterrupt, UserError):  # nobody has been told of the folder yet
        if output is None:
            shutil.rmtree(keep, ignore_errors=True)
        raise
    if json_target is not None:
        answer.write_json(json_target, tuned.to_json())
    if json_target != "-":
        _print(tuned)
    if not apply:
        return 0
    if not adapt:
        train(tuned, command)
    return train_and_adapt(tuned, command, keep, wishes, say)


def _maker() -> LiveTrial:
    if _live_trial is None:
        raise UserError("--live-replay needs the replay part of vsketchdlc; install the whole package")
    return _live_trial


def _fraction(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UserError(f"--min-gain '{text}' is not understood: write it like 3% or 0.03, from 0 to below 1")
    return value


def _print(tuned: TuningAnswer) -> None:
    from rich.table import Table

    table = Table("lanes a host", "predicted step", "90 % interval", "against stock")
    stock = tuned.predicted[0].step_s
    for row in tuned.predicted:
        mark = " <- chosen" if row.aux == tuned.chosen_aux else ""
        interval = f"{format_seconds(row.low_s)} to {format_seconds(row.high_s)}"
        table.add_row(f"{row.aux}{mark}", format_seconds(row.step_s), interval, f"{stock / row.step_s:.2f} x")
    answer.stdout.print(table)
    answer.stdout.print(tuned.reason)
    if tuned.knobs is not None:
        answer.stdout.print(f"Horovod's knobs, as options of 'run': {' '.join(tuned.knobs.options())}")
    for note in tuned.notes:
        answer.stdout.print(f"{note[0].upper()}{note[1:]}")
    cost = f"Tuning took {format_seconds(tuned.tuning_s)}"
    if tuned.payback_steps is not None:
        cost += f"; earned back after {tuned.payback_steps} steps"
    answer.stdout.print(f"{cost}. Kept in {tuned.folder}: trace/, probe.json, calibration.json")
    answer.stdout.print(
        f"Next: vsketchdlc whatif {answer.typed(f'{tuned.folder}/trace')} "
        f"--calibration {answer.typed(f'{tuned.folder}/calibration.json')} --aux 0:8"
    )
