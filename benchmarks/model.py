"""How long predictions take: one step, with intervals, many hosts, uneven hosts, what-if grids.

    benchmarks/model.py [--quick] [--json FILE]

All cases take turns in each round; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vsketchdlc.model.axes import settings_of
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.whatif import Grid

NIC, CAP = 25e9, 5e9


def scenario(model: str, hosts: int, aux: int = 4) -> Scenario:
    cluster = Cluster.star(hosts, nic_bits_per_s=NIC, flow_cap_bits_per_s=CAP)
    return Scenario(catalogue_workload(model), cluster, aux=aux)


def uneven(model: str, hosts: int) -> Scenario:
    """Seven core speeds in turn, so that no host stands for another."""
    made = scenario(model, hosts)
    graph = made.cluster.graph.copy()
    for number, host in enumerate(made.cluster.hosts):
        graph.nodes[host.name]["host"] = dataclasses.replace(host, speed=1 - 0.02 * (number % 7))
    return made.replaced(cluster=Cluster(graph, made.cluster.flow_cap_bits_per_s))


def grid(scenarios: int) -> Callable[[], object]:
    """A what-if over aux 0:9 and as many NIC rates as it takes, with intervals and reasons."""
    axes: dict[str, list[float]] = {
        "hosts": [4],
        "ranks_per_host": [1],
        "cores": [8],
        "core_speed": [1],
        "nic_bits_per_s": [(10 + n) * 1e9 for n in range(scenarios // 10)],
        "flow_cap_bits_per_s": [CAP],
        "rtt_s": [50e-6],
        "oversubscription": [1],
        "batch": [64],
        "fusion_bytes": [128 << 20],
        "cycle_s": [1e-3],
    }
    settings = settings_of(axes)
    made = Grid(catalogue_workload("vgg16"), Calibration.prior(), range(10), settings)
    return lambda: list(made.answers())


def sweep(scenarios: int) -> Callable[[], object]:
    """Deterministic steps only."""
    base = scenario("vgg16", 4)
    each = [base.replaced(aux=n % 10, fusion_bytes=(1 + n) << 20) for n in range(scenarios)]
    return lambda: [predict(one, intervals=False) for one in each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, smaller sizes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    vgg, many, odd = (
        scenario("vgg16", 4),
        scenario("resnet50", 1024),
        uneven("resnet50", 16 if options.quick else 256),
    )
    count = 100 if options.quick else 1000
    cases: list[tuple[str, Callable[[], object], float | None]] = [
        ("one step, VGG16, 4 hosts, 4 lanes", lambda: simulate_step(vgg), 0.05),
        ("the same with intervals", lambda: predict(vgg), 1.0),
        ("1,024 equal hosts, ResNet-50, 4 lanes", lambda: simulate_step(many), 1.0),
        (f"{len(odd.cluster.hosts)} uneven hosts, ResNet-50, 4 lanes", lambda: simulate_step(odd), 60.0),
        ("what-if over 100 scenarios", grid(100), 20.0),
        (f"{count} scenarios without intervals", sweep(count), 30.0),
    ]
    rounds = 1 if options.quick else 3
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for _ in range(rounds):
        for name, run, _ in cases:
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    rows: list[dict[str, Any]] = []
    for name, _, target in cases:
        times = seconds[name]
        value = statistics.median(times)
        rows.append(
            {
                "case": name,
                "variant": "model",
                "value": value,
                "unit": "s",
                "better": "lower",
                "target": target,
                "runs": rounds,
                "spread": max(times) - min(times),
            }
        )
        print(f"{name:45s} {value:10.4f} s   target {target} s")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
