"""Predict: one deterministic simulation, and around it two intervals that mean different things.

``low_s``/``high_s`` bound the median step time: what is not known about the costs (derivatives of the step
time times the calibration's covariance) and the model's own error. ``p5_s``/``p95_s`` bound single steps: how
much steps differ from one another, from vectorised draws over the simulated buckets.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..tracer.trace import Trace
from .calibration import Z90
from .scenario import Scenario
from .sites import Sites
from .step import StepRun, simulate_step
from .variability import step_draws

_MOVE = 0.1
_ELSEWHERE_ERROR = 0.04
"""What the formulas miss, relative, with other hosts or networks than they were fitted with: seen in `validate`'s runs."""


@dataclass(frozen=True)
class Prediction:
    """The answer to one `Scenario`; times in s.

    ``exposed_s`` is communication that nothing hides: last gradient done minus last gradient ready.
    ``busy`` is the share of each resource in use over the step; ``samples_per_s`` is for the whole job.
    """

    scenario: Scenario
    step_s: float
    low_s: float
    high_s: float
    p5_s: float
    p95_s: float
    exposed_s: float
    busy: dict[str, float]
    samples_per_s: float
    scaling_efficiency: float
    run: StepRun = field(repr=False)

    @property
    def aux(self) -> int:
        """Lanes per host of the scenario."""
        return self.scenario.aux

    def to_trace(self, path: str | Path, *, steps: int = 1) -> Trace:
        """Write the predicted step (`steps` of them) as a trace to folder `path`."""
        from .timeline import write_simulated_trace

        return write_simulated_trace(self.scenario, path, steps=steps)


def predict(scenario: Scenario, *, intervals: bool = True, seed: int = 0) -> Prediction:
    """Predict the step time of `scenario`; without `intervals` all bounds equal the median, and it is quicker."""
    run = simulate_step(scenario)
    low = high = p5 = p95 = run.step_s
    if intervals:
        sigma = math.hypot(
            scenario.calibration.model_error,
            parameter_sigma(scenario, run.step_s),
            _workload_sigma(scenario, run.step_s),
            _turns_sigma(scenario, run.step_s),
            _ELSEWHERE_ERROR if _is_elsewhere(scenario) else 0.0,
        )
        low, high = run.step_s * math.exp(-Z90 * sigma), run.step_s * math.exp(Z90 * sigma)
        p5, p95 = (float(value) for value in np.quantile(step_draws(scenario, run, seed), [0.05, 0.95]))
    work = scenario.workload
    return Prediction(
        scenario=scenario,
        step_s=run.step_s,
        low_s=low,
        high_s=high,
        p5_s=min(p5, run.step_s),
        p95_s=max(p95, run.step_s),
        exposed_s=max(0.0, run.last_done_s - max(run.ready_s.values())),
        busy=run.busy,
        samples_per_s=work.batch_per_rank * scenario.cluster.ranks / run.step_s,
        scaling_efficiency=min(1.0, work.compute_s / run.step_s),
        run=run,
    )


def _workload_sigma(scenario: Scenario, step_s: float) -> float:
    """Relative standard deviation of the step time from what is not known about the backward pass."""
    work = scenario.workload
    if work.unknown_s <= 0 or work.backward_s <= 0:
        return 0.0
    longer = scenario.replaced(workload=work.with_backward(work.backward_s + work.unknown_s))
    return abs(math.log(simulate_step(longer).step_s / step_s)) / Z90


def _turns_sigma(scenario: Scenario, step_s: float) -> float:
    """The same for stock MPI's connections, which take turns where busy cores make ranks begin apart.

    Seen on hosts whose cores compute holds all, it may be absent where cores are idle, and the other way round. With
    more hosts or slower cores than calibrated with, buckets that did not take turns may do so.
    """
    calibration, work = scenario.calibration, scenario.workload
    if scenario.aux or not calibration.hosts or work.device != "cpu":
        return 0.0
    seen = Sites.of(calibration.cluster(), 1.0).saturated_by(work.cpu_share)
    here = Sites.of(scenario.cluster, 1.0).saturated_by(work.cpu_share)
    if seen == here and (not here or _same_hosts(scenario)):
        return 0.0
    duplex = calibration.parameters.stock_duplex
    other = calibration.moved("stock_duplex", math.log((2.0 if here else 1.0) / duplex))
    return abs(math.log(simulate_step(scenario.replaced(calibration=other)).step_s / step_s)) / Z90


def _same_hosts(scenario: Scenario) -> bool:
    """As many hosts as calibrated with, with as much of a core each."""
    there, here = scenario.calibration.cluster(), scenario.cluster
    return len(here.hosts) == len(there.hosts) and all(
        abs(a.cores * a.speed - b.cores * b.speed) < 1e-6
        for a, b in zip(here.hosts, there.hosts, strict=True)
    )


def _is_elsewhere(scenario: Scenario) -> bool:
    """Other hosts, or another network, than those calibrated with; never without data."""
    if not scenario.calibration.hosts:
        return False
    there, here = scenario.calibration.cluster(), scenario.cluster
    return not (
        _same_hosts(scenario)
        and here.flow_cap_bits_per_s == there.flow_cap_bits_per_s
        and here.is_uniform == there.is_uniform
        and here.nic_bits_per_s(here.hosts[0].name) == there.nic_bits_per_s(there.hosts[0].name)
    )


def parameter_sigma(scenario: Scenario, step_s: float) -> float:
    """Relative standard deviation of the step time from what calibration leaves open about the costs.

    The delta method: derivative of log(step) by the logarithm of each cost, times their covariance.
    """
    calibration = scenario.calibration
    names = calibration.fitted_names
    if not names or step_s <= 0:
        return 0.0
    covariance = np.asarray(calibration.covariance, dtype=float)
    slopes = np.zeros(len(names))
    for number, name in enumerate(names):
        if covariance[number, number] <= 1e-10:
            continue
        move = min(_MOVE, 2 * math.sqrt(covariance[number, number]))
        other = _moved(scenario, name, move)
        if other is not None:
            slopes[number] = math.log(simulate_step(other).step_s / step_s) / move
    return math.sqrt(max(0.0, float(slopes @ covariance @ slopes)))


def _moved(scenario: Scenario, name: str, log_change: float) -> Scenario | None:
    """The scenario with one cost moved; None where the user's own network replaced the fitted one."""
    calibration = scenario.calibration.moved(name, log_change)
    cluster = scenario.cluster
    if name == "flow_cap_bits_per_s":
        if cluster.flow_cap_bits_per_s != scenario.calibration.value(name):
            return None
        cluster = dataclasses.replace(
            cluster, flow_cap_bits_per_s=cluster.flow_cap_bits_per_s * math.exp(log_change)
        )
    elif name == "nic_bits_per_s":
        if not cluster.is_uniform or cluster.nic_bits_per_s(
            cluster.hosts[0].name
        ) != scenario.calibration.value(name):
            return None
        cluster = cluster.with_link_rates(math.exp(log_change))
    return scenario.replaced(calibration=calibration, cluster=cluster)
