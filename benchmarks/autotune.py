"""Horovod's autotune beside `vsketchdlc tune`: how long until the final setting, and what throughput it reaches.

    benchmarks/autotune.py [--quick] [--json FILE]

Two lab hosts (NIC 4 Gbit/s, 1 Gbit/s a flow, each with real cores of its own), a live replay of a small network:
ResNet-50's gradients scaled down, steps of at most 0.3 s under stock Horovod, compute slept.

* `autotune`: HOROVOD_AUTOTUNE=1, limited to its two numeric knobs (fusion threshold, cycle time): the shortest run
  that it has, 3 warm-up scores and 21 tried points of 50 steps, 1,200 steps. Its throughput is that of the steps after them.
* `tune`: `vsketchdlc tune --all-knobs --live-replay`: lanes, fusion threshold and cycle time together. Seconds are those of
  all its parts (checks, trial, probe, model); steps those of its trial. Its throughput is that of a run with its choice.
* `stock`: Horovod's defaults, to compare with.

The final runs of all three take turns and are repeated; a value is the median over their runs. Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.validation.demo import demo_lab
from vsketchdlc.validation.lab import Lab

VSKETCHDLC = [sys.executable, "-m", "vsketchdlc"]
MPIRUN = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]
AUTOTUNE = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "0",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    "HOROVOD_CACHE_CAPACITY": "1024",
}
QUICK = {
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "1",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "3",
}
SCALE = 0.12
BATCH = 16
AUTOTUNE_STEPS = 1200
AFTER_STEPS = 60
WARM_UP = 5
AUX_MAX = 6

Row = dict[str, Any]


def subject(folder: Path) -> Path:
    """The network as a trace: what both tuners are given to play."""
    whole = catalogue_workload("resnet50", "v100", BATCH)
    small = tuple(dataclasses.replace(t, bytes=max(4, int(t.bytes * SCALE) // 4 * 4)) for t in whole.tensors)
    work = dataclasses.replace(whole, name="small", tensors=small)
    cluster = Cluster.star(2, cores=1, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)
    predict(Scenario(work, cluster)).to_trace(folder / "network", steps=4)
    return folder / "network"


class Bench:
    """The lab, the network, and runs of it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.network = subject(folder)

    def steps_s(self, aux: int, steps: int, environment: dict[str, str]) -> list[float]:
        """Seconds of each step of a live replay with `aux` lanes and `environment` in its ranks."""
        result = self.folder / "steps.json"
        launcher = [*MPIRUN, *(word for k, v in environment.items() for word in ("-x", f"{k}={v}"))]
        words = ["replay", str(self.network), "--live", "--aux", str(aux), "--steps", str(steps)]
        self.run([*words, "--json", str(result), "--", *launcher])
        found: list[float] = json.loads(result.read_text())["all_step_s"]
        return found

    def tune(self, quick: bool) -> dict[str, Any]:
        """The answer of `tune` on the same network and hosts."""
        result = self.folder / "tune.json"
        words = ["tune", "--dry-run", "--no-cache", "--all-knobs", "--aux-max", str(AUX_MAX), "--quiet"]
        words += ["--live-replay", str(self.network), "--trial-steps", "4" if quick else "8"]
        words += ["--budget", "30s" if quick else "60s", "-o", str(self.folder / "tuned")]
        self.run([*words, "--json", str(result), "--", *MPIRUN, "python", "not-run.py"])
        answer: dict[str, Any] = json.loads(result.read_text())
        return answer

    def run(self, words: list[str]) -> None:
        self.lab.run("h0", [*VSKETCHDLC, *words], check=True, timeout=580)


def knobs_of(answer: dict[str, Any]) -> dict[str, str]:
    """The environment that a tuning chose."""
    knobs = answer["knobs"]
    if knobs is None:
        return {}
    return {
        "HOROVOD_FUSION_THRESHOLD": str(knobs["fusion_bytes"]),
        "HOROVOD_CYCLE_TIME": f"{knobs['cycle_s'] * 1e3:g}",
    }


def measure(bench: Bench, quick: bool) -> list[Row]:
    answer = bench.tune(quick)
    tuned = (answer["chosen_aux"], knobs_of(answer))
    print(f"tune: {answer['tuning_s']:.1f} s, --aux {tuned[0]} {tuned[1]}; {answer['reason']}", flush=True)
    for note in answer["notes"]:
        print(f"  {note}", flush=True)
    log = bench.folder / "autotune.csv"
    own = {**AUTOTUNE, "HOROVOD_AUTOTUNE_LOG": str(log), **(QUICK if quick else {})}
    tuning_steps = 40 if quick else AUTOTUNE_STEPS
    seconds = bench.steps_s(0, tuning_steps + AFTER_STEPS, own)
    print(f"autotune: {sum(seconds[:tuning_steps]):.1f} s in {tuning_steps} steps", flush=True)
    print(log.read_text(), flush=True)
    final: dict[str, list[float]] = {"tune": [], "autotune": [], "stock": []}
    final["autotune"].append(statistics.median(seconds[tuning_steps + WARM_UP :]))
    for _ in range(1 if quick else 3):
        for name, (aux, environment) in {"stock": (0, {}), "tune": tuned}.items():
            steps_s = bench.steps_s(aux, 20 if quick else AFTER_STEPS, environment)
            final[name].append(statistics.median(steps_s[WARM_UP:]))
    steps = {"tune": 4 if quick else 8, "autotune": tuning_steps, "stock": 0}
    spent = {"tune": answer["tuning_s"], "autotune": sum(seconds[:tuning_steps]), "stock": 0.0}
    rows: list[Row] = []
    for name in ("stock", "autotune", "tune"):
        per_s = sorted(1 / one for one in final[name])
        spread = (per_s[-1] - per_s[0]) / statistics.median(per_s)
        rows.append(row("until the final setting", name, spent[name], "s", "lower", None, 1, 0.0))
        rows.append(row("until the final setting", name, steps[name], "steps", "lower", None, 1, 0.0))
        rows.append(
            row(
                "final throughput",
                name,
                statistics.median(per_s),
                "steps/s",
                "higher",
                None,
                len(per_s),
                spread,
            )
        )
    reached = statistics.median(final["autotune"]) / statistics.median(final["tune"])
    quicker, fewer = spent["autotune"] / spent["tune"], steps["autotune"] / steps["tune"]
    rows.append(row("tune over autotune", "throughput", reached, "x", "higher", 1.0, len(final["tune"]), 0.0))
    rows.append(row("tune over autotune", "seconds saved", quicker, "x", "higher", 1.0, 1, 0.0))
    rows.append(row("tune over autotune", "steps saved", fewer, "x", "higher", 1.0, 1, 0.0))
    return rows


def row(
    case: str,
    variant: str,
    value: float,
    unit: str,
    better: str,
    target: float | None,
    runs: int,
    spread: float,
) -> Row:
    return {
        "case": case,
        "variant": variant,
        "value": value,
        "unit": unit,
        "better": better,
        "target": target,
        "runs": runs,
        "spread": spread,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="autotune with 3 points: shows that it runs, not how well"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-autotune-") as name:
        folder = Path(name)
        with Lab(demo_lab(), shared=[folder]) as lab:
            for sentence in lab.spec.limits():
                print(f"note: {sentence}")
            rows = measure(Bench(lab, folder), options.quick)
    for one in rows:
        target = "" if one["target"] is None else f"   target {one['target']:g}"
        print(f"{one['case']:26s} {one['variant']:15s} {one['value']:10.4g} {one['unit']:8s}{target}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
