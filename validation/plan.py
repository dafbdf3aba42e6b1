"""What a suite will take: an estimate made of the pieces' measured times, printed before anything starts."""

from __future__ import annotations

from .suite import CalibrationRun, Case, Suite

# Measured on two cores: making a lab, and mpirun until the first step (imports, first touch, broadcast of weights).
LAB_S = 3.0
JOB_START_S = 9.0
# What a step takes as a share of a stock step, by lane count; more lanes are limited by the cores.
LANE_SHARE = {0: 1.0, 1: 0.65, 2: 0.45, 3: 0.4}
MANY_LANES_SHARE = 0.37
REPEATED = 1.15


def calibration_seconds(run: CalibrationRun, stock_s: float) -> float:
    """Seconds of a calibration run: trial, probe and fit, each with its start."""
    return LAB_S + 2 * JOB_START_S + (run.steps + 2) * stock_s + 1.3 * run.probe_s + 5.0


def case_seconds(case: Case) -> float:
    """Seconds of a case's runs, the repeated ones of an ordinary day included."""
    a_step = sum(LANE_SHARE.get(aux, MANY_LANES_SHARE) for aux in case.counts) * case.stock_s
    visits = case.visits * (JOB_START_S + (case.warm_up + case.steps) * a_step)
    check = JOB_START_S + (case.warm_up + case.steps) * case.stock_s if case.stock_check else 0.0
    return LAB_S + REPEATED * visits + check


def suite_seconds(suite: Suite) -> float:
    """Seconds of all calibrations and cases."""
    first_use = {case.calibration.name: case.stock_s for case in reversed(suite.cases)}
    calibrations = sum(calibration_seconds(run, first_use[run.name]) for run in suite.calibrations)
    return calibrations + sum(case_seconds(case) for case in suite.cases)
