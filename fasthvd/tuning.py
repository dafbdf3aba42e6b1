"""Tuning before training: a short traced run and a lane probe on the user's own hosts, then a choice.

1. Trial: the user's own command under stock Horovod, traced, stopped by all ranks after a few steps.
2. Probe: allreduces of a few sizes with 0 and more lanes, started by the same command.
3. Calibration of the model on both, prediction of the step time for each count, and the choice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..answer import write_json
from ..errors import UserError
from ..model.calibration import Calibration
from ..model.choice import Choice, choose
from ..model.fitting import calibrate
from ..model.prediction import Prediction, predict
from ..model.recorded import recorded_scenario
from ..tracer.launcher import recognise
from ..tracer.trace import Trace
from .probe import probe_lanes

TRIAL_VARIABLE = "VSKETCHDLC_TRIAL"


@dataclass(frozen=True)
class Tuning:
    """The outcome: the choice, what it rests on, and what it cost.

    ``predictions`` are ordered by count from 0; ``seconds`` is the wall time of trial, probe and model.
    """

    choice: Choice
    predictions: list[Prediction]
    calibration: Calibration
    trace: Trace
    folder: Path
    seconds: float

    @property
    def gain_s(self) -> float:
        """Predicted seconds won per step against stock Horovod."""
        return self.predictions[0].step_s - self.predictions[self.choice.aux].step_s

    @property
    def payback_steps(self) -> int | None:
        """Steps of training after which the tuning's own time is earned back; None when nothing is won."""
        return None if self.gain_s <= 0 else round(self.seconds / self.gain_s) + 1


def default_aux_max(cores: int | None) -> int:
    """Largest count worth predicting: more lanes than twice the cores only take turns."""
    return max(4, min(16, 2 * (cores or 4)))


def tune(
    command: Sequence[str],
    folder: Path,
    *,
    aux_max: int,
    trial_steps: int = 8,
    probe_budget_s: float = 20.0,
    min_gain: float = 0.03,
    say: Callable[[str], None] = lambda _: None,
) -> Tuning:
    """Choose the lane count for `command`; `folder` keeps the trace, the probe and the calibration.

    `say` is told what begins. Raises UserError when the trial or the probe cannot run.
    """
    recognise(command)  # a command that is not there is said before anything starts
    start = time.monotonic()
    say(f"trial: {trial_steps} steps of your command under stock Horovod, traced")
    trace = record_trial(command, folder / "trace", trial_steps)
    say(f"probe: allreduces with 0 to {aux_max} lanes between your hosts")
    probe = probe_lanes(command, most=aux_max, budget_s=probe_budget_s)
    write_json(str(folder / "probe.json"), probe.to_json())
    say("model: calibration and prediction")
    calibration = calibrate(trace, probe)
    calibration.save(folder / "calibration.json")
    scenario = recorded_scenario(trace, calibration)
    predictions = [predict(scenario.replaced(aux=aux)) for aux in range(aux_max + 1)]
    choice = choose(predictions, min_gain=min_gain)
    return Tuning(choice, predictions, calibration, trace, folder, time.monotonic() - start)


def record_trial(command: Sequence[str], output: Path, steps: int) -> Trace:
    """Trace the first `steps` steps of `command` under stock Horovod, then let all its ranks leave together.

    Raises UserError when the command failed or left no trace.
    """
    # One step more than asked is run: a step ends where the next one begins.
    words = [
        sys.executable,
        "-m",
        "vsketchdlc",
        "trace",
        "--quiet",
        "-o",
        str(output),
        "--stop-after",
        str(steps + 1),
    ]
    environment = {**os.environ, TRIAL_VARIABLE: "1"}
    finished = subprocess.run([*words, "--", *command], env=environment, stdout=sys.stderr, check=False)
    if finished.returncode == 2:
        raise SystemExit(2)  # wrong usage: its one line has said what to do
    if finished.returncode != 0:
        raise UserError(
            f"the trial run ended with status {finished.returncode}: run '{command[0]} ...' alone first, "
            "then look at its messages above"
        )
    return Trace.open(output)
