"""Does a live replay take as long as the run it was recorded from?

    benchmarks/replay.py [--quick] [--json FILE]

Two lab hosts (NIC 4 Gbit/s, 1 Gbit/s a flow, each with real cores of its own). For each case a run is recorded, then
replayed on the wire with every kind of compute, all in one session. A value is |replayed - recorded| / recorded of the
median step time.

* `network`: ResNet-50's gradients with compute slept, as on GPU hosts: the network is the limit.
* `cores`: AlexNet trained on one core a host, stock and with 4 lanes: compute and communication share the core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from vsketchdlc.validation.demo import TRAINING, demo_lab
from vsketchdlc.validation.lab import Lab

VSKETCHDLC = [sys.executable, "-m", "vsketchdlc"]
MPIRUN = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]
TARGET = 0.05
TRIAL = """
import sys
from pathlib import Path
from vsketchdlc.replay.trial import live_trial
live_trial("resnet50", sys.argv[3:])(Path(sys.argv[1]), int(sys.argv[2]))
"""
Row = dict[str, Any]


class Bench:
    """The lab, and the recorded runs in `folder`."""

    def __init__(self, lab: Lab, folder: Path, steps: int) -> None:
        self.lab = lab
        self.folder = folder
        self.steps = steps

    def record_network(self) -> Path:
        trace = self.folder / "network"
        words = [sys.executable, "-c", TRIAL, str(trace), str(self.steps), *MPIRUN, "python", "never.py"]
        self.lab.run("h0", words, check=True, timeout=300)
        return trace

    def record_training(self, aux: int) -> Path:
        trace = self.folder / f"training-aux{aux}"
        train = [
            sys.executable,
            str(TRAINING),
            "--model",
            "alexnet",
            "--batch",
            "4",
            "--steps",
            str(self.steps),
        ]
        words = [*VSKETCHDLC, "trace", "--quiet", "-o", str(trace), "--"]
        words += [*VSKETCHDLC, "run", "--aux", str(aux), "--", *MPIRUN, *train]
        self.lab.run("h0", words, check=True, timeout=300)
        return trace

    def replay(self, trace: Path, compute: str) -> tuple[float, float]:
        """Recorded and replayed step time in s, at the recorded lane count."""
        answer = self.folder / "answer.json"
        words = [
            *VSKETCHDLC,
            "replay",
            str(trace),
            "--live",
            "--compute",
            compute,
            "--steps",
            str(self.steps),
        ]
        self.lab.run("h0", [*words, "--json", str(answer), "--", *MPIRUN], check=True, timeout=300)
        data = json.loads(answer.read_text())
        return data["recorded_step_s"], data["replayed_step_s"]


def measure(bench: Bench, quick: bool) -> list[Row]:
    cases = {"network": (bench.record_network(), ("sleep",), "sleep")}
    for aux in (4,) if quick else (0, 4):
        trace = bench.record_training(aux)
        cases[f"cores, {aux} lanes"] = (trace, ("sleep", "spin", "mxnet"), "spin")
    rows = []
    for case, (trace, computes, judged) in cases.items():
        for compute in computes:
            recorded_s, replayed_s = bench.replay(trace, compute)
            error = abs(replayed_s / recorded_s - 1)
            print(
                f"{case:16s} {compute:6s} recorded {recorded_s:.4g} s, replayed {replayed_s:.4g} s: {error:.1%}"
            )
            rows.append(
                {
                    "case": case,
                    "variant": compute,
                    "value": error,
                    "unit": "share",
                    "better": "lower",
                    "target": TARGET if compute == judged else None,
                    "runs": bench.steps,
                    "spread": 0.0,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-replay-") as name:
        folder = Path(name)
        with Lab(demo_lab(), shared=[folder]) as lab:
            for sentence in lab.spec.limits():
                print(f"note: {sentence}")
            rows = measure(Bench(lab, folder, 6 if options.quick else 14), options.quick)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
