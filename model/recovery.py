"""Does calibration find back what it was given? Data made by the simulator, with known costs and known noise.

One trial: a simulated trace of stock Horovod and a simulated lane probe, both with noise, are calibrated; each
identified parameter is compared with the value the data were made with. Over many trials the 90 % intervals
must hold the truth about nine times in ten.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .calibration import Calibration
from .collectives import alone_s, lane_legs, stock_legs
from .fitting import calibrate
from .horovod import control_s
from .lanes import crowded_lane_s_per_byte
from .probe import LaneProbe, ProbeRow
from .rows import SCHEDULING_S, probe_wait_s
from .scenario import Scenario
from .sites import Sites
from .timeline import write_simulated_trace

PROBE_SIZES = (256 << 10, 4 << 20, 32 << 20)


@dataclass(frozen=True)
class Recovered:
    """One identified parameter of one trial."""

    name: str
    truth: float
    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative error of the value."""
        return self.value / self.truth - 1

    @property
    def held(self) -> bool:
        """Does the 90 % interval hold the truth?"""
        return self.low <= self.truth <= self.high


def simulated_probe(
    scenario: Scenario,
    *,
    counts: Sequence[int] = (0, 1, 2, 4, 6),
    sizes: Sequence[int] = PROBE_SIZES,
    rounds: int = 4,
    noise: float = 0.0,
    hiccup_s: float = 0.0,
    seed: int = 0,
) -> LaneProbe:
    """What a lane probe on the scenario's cluster would measure; `noise` is relative, of each repetition.

    All repetitions of a row are up to `hiccup_s` longer or shorter together, as the scheduler and shapers make them.
    """
    random = np.random.default_rng(seed)
    costs, cluster = scenario.parameters, scenario.cluster
    sites = Sites.of(cluster, costs.wire_efficiency)
    hosts = len(cluster.hosts)
    around_s = probe_wait_s(costs) + control_s(costs, cluster.ranks, cluster.worst_latency_s)

    def noisy(value: float, repetitions: int = 1) -> list[float]:
        return [float(v) for v in value * np.exp(noise * random.standard_normal(repetitions))]

    rows = []
    for size in sizes:
        for aux in counts:
            legs = lane_legs(sites, costs, size, aux) if aux else stock_legs(sites, costs, size, size // 4)
            lane_cpu_s = (
                2 * (hosts - 1) / hosts * size * crowded_lane_s_per_byte(costs, aux, cluster.hosts[0].cores)
            )
            lasts_s = around_s + alone_s(legs, sites, costs)
            hiccup = min(hiccup_s, lasts_s / 2) * random.uniform(-1, 1)
            rows.append(
                ProbeRow(
                    aux,
                    size,
                    noisy(lasts_s + hiccup, rounds),
                    noisy(2 * size * costs.copy_s_per_byte)[0] if aux else None,
                    noisy(lane_cpu_s)[0] if aux else None,
                )
            )
    return LaneProbe(hosts, cluster.ranks // hosts, rows)


def trial(scenario: Scenario, *, seed: int, steps: int = 20, noise: float = 0.02) -> list[Recovered]:
    """Simulate, calibrate, compare: every identified parameter whose truth is known."""
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-recovery-") as folder:
        trace = write_simulated_trace(scenario, Path(folder) / "trace", steps=steps, seed=seed, noise=noise)
        probe = simulated_probe(scenario, noise=noise, hiccup_s=SCHEDULING_S / 2, rounds=8, seed=seed)
        fitted = calibrate(trace, probe, cores=scenario.cluster.hosts[0].cores)
    return compared(scenario, fitted)


def compared(scenario: Scenario, fitted: Calibration) -> list[Recovered]:
    """The identified parameters of `fitted` beside the values in `scenario`."""
    cluster, costs = scenario.cluster, scenario.parameters
    truth = {
        "flow_cap_bits_per_s": cluster.flow_cap_bits_per_s,
        "nic_bits_per_s": cluster.nic_bits_per_s(cluster.hosts[0].name),
    }
    found = []
    for name, entry in fitted.entries.items():
        true = truth[name] if name in truth else float(getattr(costs, name))
        # What a control message takes beyond the wire is known only together with the wire's latency.
        if name == "control_round_s":
            true += cluster.worst_latency_s - fitted.latency_s
        if entry.identified:
            found.append(Recovered(name, true, entry.value, entry.low, entry.high))
    return found
