"""The trial: a few steps of the user's own command under stock Horovod, traced; and whether it can be trusted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UserError
from ..model.disturbance import disturbance
from ..model.observations import observe
from ..tracer.launcher import run_own
from ..tracer.trace import Trace

TRIAL_VARIABLE = "VSKETCHDLC_TRIAL"
Trial = Callable[[Path, int], Trace]
"""Runs some steps and leaves their trace in a folder: (folder, steps) -> trace."""


def trial_of(command: Sequence[str]) -> Trial:
    """The trial that runs the user's own script."""
    return lambda folder, steps: record_trial(command, folder, steps)


def record_trial(command: Sequence[str], output: Path, steps: int) -> Trace:
    """Trace the first `steps` steps of `command` under stock Horovod, then let all its ranks leave together.

    Raises UserError when the command failed or left no trace.
    """
    environment = {**os.environ, TRIAL_VARIABLE: "1"}
    # One step more than asked is run: a step ends where the next one begins.
    return record_traced(command, output, ["--stop-after", str(steps + 1)], environment)


def record_traced(
    command: Sequence[str], output: Path, options: Sequence[str], environment: dict[str, str]
) -> Trace:
    """Run `command` under ``vsketchdlc trace`` with `options`; its trace. Raises UserError when it failed."""
    words = [sys.executable, "-m", "vsketchdlc", "trace", "--quiet", "-o", str(output), *options]
    status = run_own([*words, "--", *command], environment, stdout=sys.stderr)
    if status == 2:
        raise SystemExit(2)  # wrong usage: its one line has said what to do
    if status != 0:
        raise UserError(
            f"the trial run ended with status {status}: run '{command[0]} ...' alone first, "
            "then look at its messages above"
        )
    return Trace.open(output)


def disturbed(trace: Trace) -> str | None:
    """What disturbed the trial, with its evidence; None for a quiet one. See `model.disturbance`."""
    found = disturbance(trace, observe(trace))
    return None if found is None else found.sentence
