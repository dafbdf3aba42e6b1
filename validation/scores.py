"""Predicted against measured: errors, regret, coverage, and what a suite's targets say of them.

Error = (predicted - measured) / measured of the median step time; regret of a chosen count = its measured step
time over the best measured one, less 1. A point that something disturbed is shown and marked, and not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np

from .records import Records
from .suite import Case, Suite
from .trust import Measured, measured, visits_of


@dataclass(frozen=True)
class Point:
    """One count of one case: predicted step time with its 90 % interval in s, and what was measured."""

    aux: int
    step_s: float
    low_s: float
    high_s: float
    measured: Measured

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.step_s / self.measured.step_s - 1

    @property
    def covered(self) -> bool:
        """Does the interval hold the measured median?"""
        return self.low_s <= self.measured.step_s <= self.high_s

    @property
    def relied_on(self) -> bool:
        """Whether nothing disturbed the runs."""
        return self.measured.disturbed is None


@dataclass(frozen=True)
class CaseScore:
    """One case: its points by count, the count that the model chose, and what is to be said of its runs.

    `stock_s` is stock Horovod with nothing preloaded, where that was checked.
    """

    case: Case
    points: tuple[Point, ...]
    chosen_aux: int
    reason: str
    notes: tuple[str, ...]
    stock_s: float | None

    @property
    def mean_error(self) -> float:
        """Mean absolute error over the counts."""
        return mean(abs(point.error) for point in self.points)

    @property
    def best(self) -> Point:
        """The count that was measured to be the quickest."""
        return min(self.points, key=lambda point: point.measured.step_s)

    @property
    def regret(self) -> float:
        """How much slower the chosen count was than the best one."""
        chosen = next(point for point in self.points if point.aux == self.chosen_aux)
        return chosen.measured.step_s / self.best.measured.step_s - 1

    @property
    def relied_on(self) -> bool:
        """Whether nothing disturbed any of its runs."""
        return all(point.relied_on for point in self.points)

    @property
    def in_order(self) -> bool:
        """Do predicted and measured step times rank the counts alike, those within 5 % of one another aside?"""
        pairs = [(a, b) for a in self.points for b in self.points if a.aux < b.aux]
        clear = [(a, b) for a, b in pairs if abs(a.measured.step_s / b.measured.step_s - 1) > 0.05]
        return all((a.step_s < b.step_s) == (a.measured.step_s < b.measured.step_s) for a, b in clear)


@dataclass(frozen=True)
class Check:
    """One target: what, its value (None: no point to judge by), the target as text, whether it is reached."""

    what: str
    value: float | None
    target: str
    reached: bool


@dataclass(frozen=True)
class Score:
    """All cases of a suite that have been measured, in its order; `missing` names the others."""

    suite: Suite
    cases: tuple[CaseScore, ...]
    missing: tuple[str, ...]

    @property
    def points(self) -> list[Point]:
        """All points, disturbed ones too."""
        return [point for case in self.cases for point in case.points]

    @property
    def judged(self) -> list[Point]:
        """The points that nothing disturbed."""
        return [point for point in self.points if point.relied_on]

    @property
    def judged_elsewhere(self) -> list[Point]:
        """Those with another host count or network than their calibration run."""
        return [p for case in self.cases if case.case.elsewhere for p in case.points if p.relied_on]

    @property
    def regrets(self) -> list[float]:
        """Of the cases that nothing disturbed."""
        return [case.regret for case in self.cases if case.relied_on]

    def mean_error(self, points: Sequence[Point] | None = None) -> float | None:
        """Mean absolute error of `points`, by default of all judged ones; None when there is none."""
        chosen = self.judged if points is None else points
        return mean(abs(point.error) for point in chosen) if chosen else None

    def quantile_error(self, share: float) -> float | None:
        """That quantile of the judged points' absolute errors; None when there is none."""
        return float(np.quantile([abs(p.error) for p in self.judged], share)) if self.judged else None

    @property
    def coverage(self) -> float | None:
        """Share of the judged points whose interval holds the measured median."""
        return mean(float(point.covered) for point in self.judged) if self.judged else None

    def checks(self) -> list[Check]:
        """The suite's targets, one by one."""
        targets, regrets = self.suite.targets, self.regrets
        bounds = [
            ("mean error", targets.mean_error, self.mean_error()),
            ("90th percentile error", targets.p90_error, self.quantile_error(0.9)),
            ("worst error", targets.worst_error, self.quantile_error(1.0)),
            (
                "mean error with other hosts or network",
                targets.elsewhere_mean_error,
                self.mean_error(self.judged_elsewhere),
            ),
            ("mean regret", targets.mean_regret, mean(regrets) if regrets else None),
            ("worst regret", targets.worst_regret, max(regrets, default=None)),
        ]
        checks = [
            Check(what, value, f"<= {100 * bound:g} %", value is not None and value <= bound)
            for what, bound, value in bounds
            if bound is not None
        ]
        low, high = targets.coverage_low, targets.coverage_high
        if low is not None or high is not None:
            low, high = low or 0.0, 1.0 if high is None else high
            inside = self.coverage is not None and low <= self.coverage <= high
            checks.append(
                Check(
                    "intervals that hold the median",
                    self.coverage,
                    f"{100 * low:g} to {100 * high:g} %",
                    inside,
                )
            )
        if targets.order:
            share = mean(float(case.in_order) for case in self.cases) if self.cases else None
            checks.append(Check("scenarios with the counts in the right order", share, "100 %", share == 1.0))
        return checks

    @property
    def good(self) -> bool:
        """Whether everything was measured and every target is reached."""
        return not self.missing and all(check.reached for check in self.checks())

    def to_json(self) -> dict[str, Any]:
        """The answer for programs; errors and regrets are shares of 1."""
        return {
            "suite": self.suite.name,
            "digest": self.suite.digest,
            "good": self.good,
            "points": len(self.points),
            "judged_points": len(self.judged),
            "mean_error": self.mean_error(),
            "p90_error": self.quantile_error(0.9),
            "elsewhere_mean_error": self.mean_error(self.judged_elsewhere),
            "coverage": self.coverage,
            "mean_regret": mean(self.regrets) if self.regrets else None,
            "worst_regret": max(self.regrets, default=None),
            "checks": [vars(check) for check in self.checks()],
            "missing": list(self.missing),
            "scenarios": [_case_json(case) for case in self.cases],
        }


def _case_json(score: CaseScore) -> dict[str, Any]:
    case = score.case
    return {
        "name": case.name,
        "training": case.training.describe(),
        "place": case.place.describe(),
        "calibration": case.calibration.name,
        "elsewhere": case.elsewhere,
        "chosen_aux": score.chosen_aux,
        "best_aux": score.best.aux,
        "regret": score.regret,
        "stock_without_preload_s": score.stock_s,
        "notes": list(score.notes),
        "points": [
            {
                "aux": point.aux,
                "predicted_s": point.step_s,
                "low_s": point.low_s,
                "high_s": point.high_s,
                "measured_s": point.measured.step_s,
                "error": point.error,
                "covered": point.covered,
                "steps": point.measured.steps,
                "visits": point.measured.visits,
                "visits_left_out": point.measured.left_out,
                "spread": point.measured.spread,
                "disturbed": point.measured.disturbed,
                "noisy": point.measured.noisy,
            }
            for point in score.points
        ],
    }


def score(suite: Suite, records: Records) -> Score:
    """What the log says of the suite."""
    cores = int(records.of("suite")[0]["cores"])
    cases, missing = [], []
    for case in suite.cases:
        runs = records.of("run", scenario=case.name, preloaded=True)
        predictions = records.of("prediction", scenario=case.name)
        if len(runs) >= case.visits and predictions:
            cases.append(_score_case(case, predictions[0], runs, records, cores))
        else:
            missing.append(case.name)
    return Score(suite, tuple(cases), tuple(missing))


def _score_case(
    case: Case, prediction: dict[str, Any], runs: list[dict[str, Any]], records: Records, cores: int
) -> CaseScore:
    points = tuple(
        Point(
            row["aux"],
            row["step_s"],
            row["low_s"],
            row["high_s"],
            measured(visits_of(runs, row["aux"]), cores),
        )
        for row in prediction["predicted"]
    )
    plain = [
        seconds
        for run in records.of("run", scenario=case.name, preloaded=False)
        for visit in visits_of([run], 0)
        for seconds in visit.step_s
    ]
    notes = [*_calibration_notes(case, records), *_notes(points)]
    failed = len(records.of("failed", name=case.name))
    if failed:
        notes.append(
            f"{failed} job{'' if failed == 1 else 's'} failed and {'was' if failed == 1 else 'were'} done again"
        )
    return CaseScore(
        case,
        points,
        prediction["chosen_aux"],
        prediction["reason"],
        tuple(notes),
        median(plain) if plain else None,
    )


def _calibration_notes(case: Case, records: Records) -> list[str]:
    lines = records.of("calibration", name=case.calibration.name)
    if any(line["trusted"] for line in lines):
        return []
    return [f"its calibration run cannot be trusted: {'; '.join(lines[0]['reasons'])}"] if lines else []


def _notes(points: Sequence[Point]) -> list[str]:
    said: list[str] = []
    reasons: list[tuple[str, Callable[[Measured], str | None]]] = [
        ("not judged", lambda seen: seen.disturbed),
        ("noisy", lambda seen: seen.noisy),
    ]
    for what, reason in reasons:
        said += [f"{lanes(p.aux)} {what}: {reason(p.measured)}" for p in points if reason(p.measured)]
    return said + [
        f"{lanes(p.aux)}: {p.measured.left_out} disturbed visit{'' if p.measured.left_out == 1 else 's'} left out"
        for p in points
        if p.measured.left_out
    ]


def lanes(aux: int) -> str:
    """``stock``, ``1 lane``, ``4 lanes``."""
    return "stock" if aux == 0 else f"{aux} lane{'' if aux == 1 else 's'}"
