"""Run a suite: calibrate, predict, then measure; each result is on the disk before the next thing begins.

For each case in turn:

1. its calibration run, unless an earlier case had the same;
2. predictions for all its counts, written down before any of its runs;
3. one job a visit, in which the lane counts alternate; every second job visits them in the opposite order;
4. where a count is noisy or something disturbed it, up to `repeats` more jobs with these counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..model.calibration import Calibration
from ..model.choice import choose
from ..model.prediction import predict
from ..model.recorded import recorded_scenario
from ..model.scenario import Scenario
from ..tracer.trace import Trace
from .lab import Lab
from .lab_runs import run_on_h0
from .plan import calibration_seconds, case_seconds
from .records import Records
from .slow_lane import SlowLane
from .suite import CalibrationRun, Case, Suite
from .trust import needs_another, visits_of

MAX_FAILURES = 2
REPEATS = 2


class JobFailed(Exception):
    """A job in the lab did not end well; the text says what it said last."""


class Campaign:
    """A suite on its way; `folder` keeps the log, the calibrations and what the jobs said."""

    def __init__(
        self, suite: Suite, folder: Path, say: Callable[[str], None], *, repeats: int = REPEATS
    ) -> None:
        self.suite = suite
        self.folder = folder
        self.say = say
        self.repeats = repeats
        folder.mkdir(parents=True, exist_ok=True)
        self.records = Records.open(folder, suite, say)
        self._cores = os.cpu_count() or 1
        self._failures: dict[str, list[str]] = {}
        self._scenarios: dict[str, tuple[Scenario, Calibration]] = {}

    def run(
        self, budget_s: float | None = None, after_case: Callable[[Records], None] = lambda _: None
    ) -> bool:
        """Run what is not in the log yet; False when `budget_s` ended it before the last case.

        `after_case` gets the log after each case: the page is there early.
        """
        start_s = time.monotonic()
        for number, case in enumerate(self.suite.cases, 1):
            if self._finished(case):
                continue
            spent_s = time.monotonic() - start_s
            if budget_s is not None and spent_s + self._left_s(case) > budget_s:
                self.say(f"the budget is used up after {number - 1} of {len(self.suite.cases)} scenarios")
                return False
            self.say(
                f"scenario {number} of {len(self.suite.cases)}: {case.training.describe()}; {case.place.describe()}"
            )
            try:
                self._case(case)
            except JobFailed as failure:
                self.say(f"gave up '{case.name}': {failure}")
            after_case(self.records)
        return True

    def _finished(self, case: Case) -> bool:
        return bool(self.records.of("finished", scenario=case.name))

    def _left_s(self, case: Case) -> float:
        done = bool(self.records.of("calibration", name=case.calibration.name, trusted=True))
        return case_seconds(case) + (0 if done else calibration_seconds(case.calibration, case.stock_s))

    def _case(self, case: Case) -> None:
        self._calibrate(case.calibration)
        if not self.records.of("prediction", scenario=case.name):
            self.records.append(self._predict(case))
        try:
            with Lab(case.place.spec, shared=[self.folder]) as lab:
                self._measure(case, lab)
        except JobFailed:
            if not self._complete(case):
                raise
            self.say("a job that was to be done again for its noise failed: the noise stays, and is marked")
        self.records.append({"kind": "finished", "scenario": case.name})

    def _complete(self, case: Case) -> bool:
        return len(self._runs(case)) >= case.visits

    def _runs(self, case: Case) -> list[dict[str, Any]]:
        return self.records.of("run", scenario=case.name, preloaded=True)

    # ---- calibration and prediction --------------------------------------------------------------------

    def _calibrate(self, run: CalibrationRun) -> None:
        tried = self.records.of("calibration", name=run.name)
        while not any(line["trusted"] for line in tried) and len(tried) < 1 + min(1, self.repeats):
            self.say(f"calibration run '{run.name}': {run.training.describe()}; {run.place.describe()}")
            folder = Path("calibrations") / f"{_plain(run.name)}-{len(tried) + 1}"
            shutil.rmtree(self.folder / folder, ignore_errors=True)  # of a run that was stopped
            folder = self._fresh(folder)
            words = [sys.executable, "-m", "vsketchdlc.validation.calibrating", str(folder)]
            words += [str(run.aux_max), str(run.steps), str(run.probe_s), *run.place.mpirun]
            with Lab(run.place.spec, shared=[self.folder]) as lab:
                collisions = self._job(lab, run.name, [*words, *self._training(run.training.words)], 600)
            disturbed = Calibration.load(folder / "calibration.json").disturbed
            reasons = [*collisions, *([disturbed] if disturbed else [])]
            if reasons:
                self.say(f"this calibration run cannot be trusted: {'; '.join(reasons)}")
            line = {"name": run.name, "folder": str(folder.relative_to(self.folder)), "trusted": not reasons}
            self.records.append({"kind": "calibration", **line, "reasons": reasons})
            tried = self.records.of("calibration", name=run.name)

    def _predict(self, case: Case) -> dict[str, Any]:
        """The ``prediction`` line: what the model says before the runs."""
        own, calibration = self._recorded(case.calibration)
        work = own.workload.scaled(
            batch_per_rank=case.training.batch,
            dtype_bytes=2 if case.training.fp16 and not case.calibration.training.fp16 else None,
        )
        there = own.replaced(workload=work, cluster=case.place.cluster(calibration, case.calibration.place))
        predictions = [predict(there.with_lanes(aux)) for aux in case.counts]
        choice = choose(predictions)
        fields = ("aux", "step_s", "low_s", "high_s", "p5_s", "p95_s")
        rows = [{name: getattr(row, name) for name in fields} for row in predictions]
        said = {"predicted": rows, "chosen_aux": choice.aux, "reason": choice.reason}
        return {"kind": "prediction", "scenario": case.name, **said, "gradient_bytes": work.gradient_bytes}

    def _recorded(self, run: CalibrationRun) -> tuple[Scenario, Calibration]:
        if run.name not in self._scenarios:
            lines = self.records.of("calibration", name=run.name)
            line = max(lines, key=lambda entry: entry["trusted"])
            folder = self.folder / line["folder"]
            calibration = Calibration.load(folder / "calibration.json")
            place = run.place.cluster(calibration, run.place)
            trace = Trace.open(folder / "trace")
            self._scenarios[run.name] = recorded_scenario(trace, calibration, cluster=place), calibration
        return self._scenarios[run.name]

    # ---- real runs -------------------------------------------------------------------------------------

    def _measure(self, case: Case, lab: Lab) -> None:
        while len(self._runs(case)) < case.visits:
            self._visit(case, lab, case.counts)
        if case.stock_check and not self.records.of("run", scenario=case.name, preloaded=False):
            self._visit(case, lab, (0,), preloaded=False)
        while len(self._runs(case)) < case.visits + self.repeats:
            noisy = [aux for aux in case.counts if self._noisy(case, aux)]
            if not noisy:
                return
            self.say(f"again, because of noise: {', '.join(map(str, noisy))} lanes")
            self._visit(case, lab, noisy)

    def _noisy(self, case: Case, aux: int) -> bool:
        return needs_another(visits_of(self._runs(case), aux), case.visits, self._cores)

    def _visit(self, case: Case, lab: Lab, counts: Sequence[int], *, preloaded: bool = True) -> None:
        """One job that visits `counts`, and its line in the log."""
        number = len(self.records.of("run", scenario=case.name))
        order = list(counts) if number % 2 == 0 else list(reversed(counts))
        seed = case.seeds[number % len(case.seeds)]
        result = self._fresh(Path("jobs")) / f"{_plain(case.name)}-{number}.json"
        words = [*case.training.words, "--blocks", ",".join(map(str, order)), "--seed", str(seed)]
        words += ["--steps", str(case.warm_up + case.steps), "--result", str(result)]
        command = [*case.place.mpirun, *self._training(words)]
        if preloaded:
            # One lane at least: a job with none would not be preloaded at all.
            most = str(max(1, *counts)) if len(counts) > 1 else str(max(1, counts[0]))
            command = [sys.executable, "-m", "vsketchdlc", "run", "--aux", most, "--", *command]
        limit_s = 120 + 3 * case_seconds(case) / case.visits
        if case.place.slow_lane_bits_per_s is None or not preloaded:
            collisions = self._job(lab, case.name, command, limit_s)
        else:
            with SlowLane(lab, case.place.slow_lane_bits_per_s) as watch:
                collisions = self._job(lab, case.name, command, limit_s)
            if not watch.slowed:
                raise JobFailed("the first lane's flow was not seen, so it was not slowed down")
        blocks = json.loads(result.read_text(encoding="utf-8"))["blocks"]
        line = {
            "kind": "run",
            "scenario": case.name,
            "preloaded": preloaded,
            "seed": seed,
            "warm_up": case.warm_up,
        }
        self.records.append({**line, "blocks": blocks, "collisions": collisions})

    def _training(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "vsketchdlc.validation.training", *words]

    def _job(self, lab: Lab, name: str, command: Sequence[str], limit_s: float) -> list[str]:
        """Run a command to a good end, once more when it fails; returns the collisions of its flows.

        Raises JobFailed when it has failed too often since this campaign began.
        """
        failed = self._failures.setdefault(name, [])
        while True:
            if len(failed) >= MAX_FAILURES:
                raise JobFailed(failed[-1])
            log = self._fresh(Path("logs")) / f"{_plain(name)}-{len(self.records.lines)}.log"
            with log.open("w", encoding="utf-8") as output:
                try:
                    status, collisions = run_on_h0(lab, command, output=output, timeout_s=limit_s)
                    reason = f"status {status}"
                except subprocess.TimeoutExpired:
                    status, collisions, reason = -1, [], f"no end after {limit_s:.0f} s"
            if status == 0:
                return [str(collision) for collision in collisions]
            reason = f"{reason}: {_last_words(log)} (all of it: {log})"
            self.say(f"a job failed with {reason}")
            failed.append(reason)
            self.records.append({"kind": "failed", "name": name, "reason": reason})

    def _fresh(self, below: Path) -> Path:
        folder = self.folder / below
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make {folder}: {error.strerror}; choose another folder with -o"
            ) from None
        return folder


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-")


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
