"""What holds a step back: seconds gained by 10 % more of each resource, and the sentence that says so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from .calibration import Calibration
from .cluster import Cluster, Host
from .prediction import Prediction
from .scenario import Scenario
from .step import simulate_step

MORE = 1.10
_WORTH = 0.002
"""A resource matters when 10 % more of it gains at least this share of the step."""

_NEARLY = 0.75

NAMES = {
    "flow_cap": "the per-flow cap",
    "nic": "the NIC",
    "cores": "the number of cores",
    "core_speed": "the speed of the cores",
    "compute": "compute",
}


def sensitivity(scenario: Scenario, step_s: float | None = None) -> dict[str, float]:
    """Seconds per step gained by 10 % more of: flow_cap, nic, cores, core_speed (communication's CPU work), compute."""
    base = simulate_step(scenario).step_s if step_s is None else step_s
    cluster = scenario.cluster
    more = {
        "nic": scenario.replaced(cluster=cluster.with_link_rates(MORE)),
        "cores": scenario.replaced(cluster=_hosts(cluster, "cores")),
        "core_speed": scenario.replaced(calibration=_quicker(scenario)),
        "compute": scenario.replaced(workload=scenario.workload.scaled(speed=MORE)),
    }
    if math.isfinite(cluster.flow_cap_bits_per_s):
        wider = dataclasses.replace(cluster, flow_cap_bits_per_s=cluster.flow_cap_bits_per_s * MORE)
        more["flow_cap"] = scenario.replaced(cluster=wider)
    return {name: max(0.0, base - simulate_step(other).step_s) for name, other in more.items()}


def _hosts(cluster: Cluster, field: str) -> Cluster:
    graph = cluster.graph.copy()
    for _, data in graph.nodes(data=True):
        if data["kind"] == "host":
            host: Host = data["host"]
            data["host"] = dataclasses.replace(host, **{field: getattr(host, field) * MORE})
    return dataclasses.replace(cluster, graph=graph)


def _quicker(scenario: Scenario) -> Calibration:
    calibration = scenario.calibration
    for name in (
        "stock_s_per_byte",
        "stock_reduce_s_per_byte",
        "lane_s_per_byte",
        "copy_s_per_byte",
        "fuse_in_s_per_byte",
        "fuse_out_s_per_byte",
    ):
        calibration = calibration.moved(name, -math.log(MORE))
    return calibration


def limiting(prediction: Prediction, before: str | None = None) -> str:
    """The communication resource of which 10 % more would gain most; "compute" where none would.

    `before` is what limits the next smaller count: it stays where it is worth nearly as much.
    """
    gains = sensitivity(prediction.scenario, prediction.step_s)
    gains.pop("compute")
    best = max(gains, key=lambda name: gains[name])
    if gains[best] < _WORTH * prediction.step_s:
        return "compute"
    return before if before in gains and gains[before] >= _NEARLY * gains[best] else best


def sentence(predictions: Sequence[Prediction], limits: Sequence[str]) -> str:
    """What holds back predictions of one setting that differ in ``aux``, and from which count on.

    `limits` is what `limiting` says of each.
    """
    ordered = sorted(zip(predictions, limits, strict=True), key=lambda pair: pair[0].aux)
    hosts = len(ordered[0][0].scenario.cluster.hosts)
    runs: list[tuple[str, int, int]] = []
    for prediction, name in ordered:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1], prediction.aux)
        else:
            runs.append((name, prediction.aux, prediction.aux))
    words = f"with {hosts} hosts {NAMES[runs[0][0]]} holds you back"
    if len(runs) == 1:
        return f"{words} at every count from {runs[0][1]} to {runs[0][2]} lanes"
    words += f" until {runs[1][1]} lane{'s' if runs[1][1] != 1 else ''}"
    for number, (name, first, _) in enumerate(runs[1:]):
        words += f", then {NAMES[name]}" if number == 0 else f", from {first} lanes on {NAMES[name]}"
    return words
