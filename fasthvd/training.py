"""The training with what was chosen: its first steps held against the prediction, and on request learnt from."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..answer import write_json
from ..errors import UserError
from ..model.probe import LaneProbe
from ..tracer.launcher import Launch, RankEnvironment, prepare, run
from ..tracer.trace import Trace
from .instead import HOOK_FOLDER
from .probe import probe_lanes
from .tuning import LANE_PROBE_S, TuningWishes, conclude
from .tuning_answer import TuningAnswer, command_of

WATCH_VARIABLE = "FASTHVD_WATCH"
SKIPPED_STEPS = 2
WATCHED_STEPS = 20


def watched(
    answer: TuningAnswer, command: Sequence[str], words: Sequence[str] = (), result: Path | None = None
) -> Launch:
    """`command` with the chosen lanes and knobs, after `words`; rank 0 tells how its first steps compare."""
    expected = answer.expected
    plan = {
        "step_s": expected.step_s,
        "low_s": expected.low_s,
        "high_s": expected.high_s,
        "skip": SKIPPED_STEPS,
        "steps": WATCHED_STEPS,
        "result": None if result is None else str(result),
    }
    variables = {WATCH_VARIABLE: json.dumps(plan, separators=(",", ":"))}
    if answer.knobs is not None:
        variables.update(answer.knobs.variables())
    vsketchdlc = [sys.executable, "-m", "vsketchdlc"]
    run_words = [*vsketchdlc, "run", "--aux", str(answer.chosen_aux), "--", *command]
    ranks = RankEnvironment(python_path=(str(HOOK_FOLDER),), variables=variables)
    return prepare([*words, *run_words], ranks, os.environ)


def train(answer: TuningAnswer, command: Sequence[str]) -> None:
    """Become the training. Raises UserError when it cannot be started."""
    launch = watched(answer, command)
    sys.stdout.flush()
    try:
        os.execvpe(launch.command[0], launch.command, launch.environment)
    except OSError as error:
        raise UserError(f"cannot start '{launch.command[0]}': {error.strerror}") from None


def train_and_adapt(
    answer: TuningAnswer,
    command: Sequence[str],
    folder: Path,
    wishes: TuningWishes,
    say: Callable[[str], None],
) -> int:
    """Train with the first steps traced; where they are not as predicted, calibrate on them; the exit status.

    The other hosts' logs come home when the training ends, so that is when the answer for the next run is told.
    """
    target, result = folder / "first-steps", folder / "first-steps.json"
    result.unlink(missing_ok=True)
    window = f"{SKIPPED_STEPS}:{SKIPPED_STEPS + WATCHED_STEPS + 1}"
    trace_words = [sys.executable, "-m", "vsketchdlc", "trace", "--quiet", "-o", str(target)]
    launch = watched(answer, command, [*trace_words, "--steps", window, "--"], result)
    sys.stdout.flush()
    status = run(launch)
    if not result.exists():
        say(f"the training had fewer than {WATCHED_STEPS + SKIPPED_STEPS} steps: nothing to learn from")
        return status
    if json.loads(result.read_text(encoding="utf-8"))["within"]:
        say("the first steps were as predicted: the choice stands for the next run")
        return status
    probe = _probe_for_next_run(answer, command, folder, wishes, status, say)
    say(next_run(answer, command, folder, wishes, target, probe))
    return status


def _probe_for_next_run(
    answer: TuningAnswer,
    command: Sequence[str],
    folder: Path,
    wishes: TuningWishes,
    status: int,
    say: Callable[[str], None],
) -> LaneProbe:
    """The lanes probed again: what went wrong may be that the network is another now.

    After a training that failed or was interrupted, the hosts may be lost or wanted: then it is the probe from before.
    """
    if status != 0:
        return LaneProbe.load(Path(answer.folder) / "probe.json")
    budget_s = min(LANE_PROBE_S, wishes.budget_s)
    say(f"the first steps were not as predicted: lane probe, 0 to {wishes.aux_max} lanes, {budget_s:.0f} s")
    probe = probe_lanes(command, most=wishes.aux_max, budget_s=budget_s)
    write_json(str(_adapted(folder) / "probe.json"), probe.to_json())
    return probe


def _adapted(folder: Path) -> Path:
    adapted = folder / "adapted"
    adapted.mkdir(exist_ok=True)
    return adapted


def next_run(
    answer: TuningAnswer,
    command: Sequence[str],
    folder: Path,
    wishes: TuningWishes,
    target: Path,
    probe: LaneProbe,
) -> str:
    """What the steps in trace `target` and `probe` teach: the sentence for the user, with the next run's command."""
    adapted = _adapted(folder)
    again = conclude(Trace.open(target), probe, adapted, wishes, [], time.monotonic())
    # Both as the new calibration has it: the old one has just been shown wrong.
    now, kept = again.expected, again.predicted[answer.chosen_aux]
    if again.chosen_aux == answer.chosen_aux and again.knobs == answer.knobs:
        return f"calibrated on the first steps ({adapted}/calibration.json): {answer.chosen_aux} lanes are still the choice"
    if 1 - now.step_s / kept.step_s < wishes.min_gain:
        return (
            f"calibrated on the first steps: {again.chosen_aux} lanes may be better, but not for sure; "
            f"{answer.chosen_aux} stay the choice"
        )
    return (
        f"calibrated on the first steps: {again.chosen_aux} lanes should take {now.step_s:.4g} s a step instead of "
        f"{kept.step_s:.4g} s; next run: {' '.join(command_of(again, command))}"
    )
