"""Does calibration find back known costs? Simulated traces and probes with noise, 200 trials (20 with --quick).

    benchmarks/recovery.py [--quick] [--json FILE]

For each identified parameter: the largest relative error, and how often its 90 % interval holds the truth; pooled over
all parameters that must be 85 to 95 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import defaultdict
from pathlib import Path

from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.recovery import Recovered, trial
from vsketchdlc.model.scenario import Scenario


def subject() -> Scenario:
    """AlexNet on one core a host, NIC 4 Gbit/s, 1 Gbit/s a flow: lanes meet cap, NIC and cores in turn."""
    work = catalogue_workload("alexnet", "p100", 64)
    on_cpu = dataclasses.replace(work, device="cpu", cpu_share=1.0).scaled(speed=0.1)
    cluster = Cluster.star(2, cores=1, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)
    return Scenario(on_cpu, cluster, Calibration.prior())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trials = 20 if options.quick else 200
    scenario = subject()
    by_name: dict[str, list[Recovered]] = defaultdict(list)
    for seed in range(trials):
        for one in trial(scenario, seed=seed, noise=0.01):
            by_name[one.name].append(one)
    rows = []

    def row(case: str, variant: str, value: float, better: str, target: float | None) -> None:
        rows.append(
            {
                "case": case,
                "variant": variant,
                "value": value,
                "unit": "1",
                "better": better,
                "target": target,
                "runs": trials,
                "spread": 0.0,
            }
        )

    for name, found in sorted(by_name.items()):
        worst = max(abs(one.error) for one in found)
        held = sum(one.held for one in found) / len(found)
        print(
            f"{name:24s} identified {len(found):4d}   worst error {worst:6.2%}   interval holds {held:4.0%}"
        )
        row(name, "worst error", worst, "lower", 0.03)
    every = [one for found in by_name.values() for one in found]
    pooled = sum(one.held for one in every) / len(every)
    print(f"pooled: 90 % intervals hold the truth in {pooled:.1%}")
    row("all parameters", "intervals that hold the truth", pooled, "higher", 0.85)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
