"""Tuning before training: checks, a short traced run and a lane probe on the user's own hosts, then a choice.

1. Checks: the ranks report cores, binding and interfaces, and one TCP flow is held against several.
2. An earlier tuning of the same job on the same hosts is taken again while the flows are what they were.
3. Trial: the user's own command under stock Horovod, traced, stopped by all ranks after a few steps (or a live
   replay in its place). One that was disturbed is repeated once.
4. Lane probe: allreduces of a few sizes with 0 and more lanes, started by the same command.
5. Calibration of the model on both, prediction of the step time for each count, and the choice.
"""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..answer import write_json
from ..errors import UserError
from ..model.choice import choose
from ..model.fitting import calibrate
from ..model.prediction import Prediction, predict
from ..model.probe import LaneProbe
from ..model.recorded import recorded_scenario
from ..model.scenario import Scenario
from ..tracer.launcher import recognise
from ..tracer.trace import Trace
from . import tuning_cache
from .flow_probe import FlowProbe, probe_command
from .knobs import Knobs, best_knobs
from .probe import probe_lanes
from .readiness import State, of_job
from .settings import require_native
from .trial import Trial, disturbed, trial_of
from .trial import record_trial as record_trial
from .tuning_answer import PredictedStep, TuningAnswer

LANE_PROBE_S = 20.0
_LEAST_PROBE_S = 6.0
_MODEL_S = 5.0


@dataclass(frozen=True)
class TuningWishes:
    """What the user asked of `tune`. ``budget_s`` bounds the whole: the lane probe gets what the trial leaves.

    ``source`` names what the trial plays where it is not the user's own script.
    """

    aux_max: int
    trial_steps: int = 8
    budget_s: float = 60.0
    min_gain: float = 0.03
    all_knobs: bool = False
    use_cache: bool = True
    iface: str = ""
    source: str = ""


def default_aux_max(cores: int | None) -> int:
    """Largest count worth predicting: more lanes than twice the cores only take turns."""
    return max(4, min(16, 2 * (cores or 4)))


def tune(
    command: Sequence[str],
    folder: Path,
    wishes: TuningWishes,
    *,
    trial: Trial | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> TuningAnswer:
    """Choose the lane count for `command`; `folder` keeps the trace, the probe and the calibration.

    `say` is told what begins and what is not as it should be. Raises UserError when the trial or a probe cannot run.
    """
    recognise(command)  # a command that is not there is said before anything starts
    require_native()
    start = time.monotonic()
    say("checks: cores, interfaces, and one TCP flow against several")
    flows = probe_command(command, (1, min(4, max(2, wishes.aux_max))), iface=wishes.iface)
    _say_findings(flows, say)
    name = tuning_cache.fingerprint(command, flows, asdict(wishes))
    if wishes.use_cache and (earlier := _earlier(name, flows, start, say)) is not None:
        return earlier
    notes: list[str] = []
    trace = _quiet_trial(trial or trial_of(command), folder / "trace", wishes.trial_steps, say, notes)
    left_s = wishes.budget_s - (time.monotonic() - start) - _MODEL_S
    budget_s = max(_LEAST_PROBE_S, min(LANE_PROBE_S, left_s))
    say(f"lane probe: allreduces with 0 to {wishes.aux_max} lanes between your hosts, {budget_s:.0f} s")
    probe = probe_lanes(command, most=wishes.aux_max, budget_s=budget_s)
    write_json(str(folder / "probe.json"), probe.to_json())
    say("model: calibration and prediction")
    answer = conclude(trace, probe, folder, wishes, notes, start)
    if wishes.use_cache and not answer.notes:  # a disturbed tuning is not worth keeping
        made = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
        problem = tuning_cache.save(name, made, flows, answer)
        if problem:
            say(problem)
    return answer


def conclude(
    trace: Trace,
    probe: LaneProbe,
    folder: Path,
    wishes: TuningWishes,
    notes: list[str],
    start_s: float,
) -> TuningAnswer:
    """Calibrate on `trace` and `probe`, predict every count, choose; `start_s` is when the tuning began."""
    calibration = calibrate(trace, probe)
    calibration.save(folder / "calibration.json")
    if calibration.disturbed:
        notes = [*notes, calibration.disturbed]
    scenario = recorded_scenario(trace, calibration)
    return answer_for(scenario, folder, wishes, notes, lambda: time.monotonic() - start_s)


def answer_for(
    scenario: Scenario,
    folder: Path,
    wishes: TuningWishes,
    notes: list[str],
    spent_s: Callable[[], float],
) -> TuningAnswer:
    """Predict `scenario` for every count up to the wish, with Horovod's knobs where wished, and choose."""
    counts = range(wishes.aux_max + 1)
    stock = predict(scenario.with_lanes(0))
    knobs = Knobs(scenario.fusion_bytes, scenario.cycle_s)
    if wishes.all_knobs:
        knobs = best_knobs(scenario, counts)
    own = scenario.replaced(fusion_bytes=knobs.fusion_bytes, cycle_s=knobs.cycle_s)
    with_lanes = [predict(own.with_lanes(aux)) for aux in counts[1:]]
    choice = choose([stock, *with_lanes], min_gain=wishes.min_gain)
    aux, reason = choice.aux, choice.reason
    changed = knobs != Knobs(scenario.fusion_bytes, scenario.cycle_s)
    chosen: Prediction | None = None
    if changed and aux == 0:
        chosen, reason = _knobs_alone(stock, predict(own.with_lanes(0)), reason, knobs, wishes.min_gain)
    elif changed:
        reason = f"{reason}; with {knobs}"
    keeps = not changed or (aux == 0 and chosen is None)
    return TuningAnswer(
        aux,
        reason,
        [PredictedStep.of(row) for row in (stock, *with_lanes)],
        spent_s(),
        str(folder),
        None if keeps else knobs,
        None if chosen is None else PredictedStep.of(chosen),
        notes,
    )


def _knobs_alone(
    stock: Prediction, better: Prediction, reason: str, knobs: Knobs, min_gain: float
) -> tuple[Prediction | None, str]:
    """Stock Horovod with other knobs, where that alone gains enough."""
    gain = 1 - better.step_s / stock.step_s
    if gain < min_gain:
        return None, reason
    return better, f"no lanes, but {knobs}: {gain:.1%} less a step ({reason})"


def _say_findings(flows: FlowProbe, say: Callable[[str], None]) -> None:
    """Only what matters: what limits the choice, and what one flow gets."""
    for finding in of_job(flows):
        if finding.state is State.MISSING:
            raise UserError(f"{finding.name}: {finding.found}; {finding.fix}")
        if finding.state is State.LIMITED:
            say(f"{finding.name}: {finding.found}; {finding.fix}")
        elif finding.name == "flows":
            say(f"{finding.name}: {finding.found}")


def _earlier(name: str, flows: FlowProbe, start: float, say: Callable[[str], None]) -> TuningAnswer | None:
    entry = tuning_cache.load(name)
    if entry is None:
        return None
    differs = entry.disagreement(flows)
    if differs:
        say(f"tuned on {entry.made}, but {differs}: tuning again")
        return None
    note = f"reused the tuning of {entry.made}: same job, same hosts, and a two-second probe agrees; --no-cache tunes again"
    say(note)
    return entry.answer.reused(time.monotonic() - start, note)


def _quiet_trial(
    trial: Trial, folder: Path, steps: int, say: Callable[[str], None], notes: list[str]
) -> Trace:
    """The trial's trace; a disturbed one is repeated once, then taken and noted."""
    say(f"trial: {steps} steps under stock Horovod, traced")
    trace = trial(folder, steps)
    first = disturbed(trace)
    if first is None:
        return trace
    say(f"{first}: once more")
    again = folder.with_name(f"{folder.name}-again")
    if disturbed(trial(again, steps)) is not None:
        notes.append("both trials were disturbed: trust the prediction less, or tune on quiet hosts")
        say(notes[-1])
    shutil.rmtree(folder)
    again.rename(folder)
    return Trace.open(folder)
