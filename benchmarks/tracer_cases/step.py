"""What tracing costs a training step: real MXNet and Horovod with four lanes in the demo's lab.

Steps without and with tracing take turns in one and the same run, and so do, less often, steps under Horovod's own
timeline and under MXNet's profiler. A value is the median over pairs of (with - without) / without, its spread the
95 % interval. Beside it stands what the recorded events of a step cost by themselves: their number, each times what
one of its kind costs (`event.py`), over the step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsketchdlc.validation.demo import demo_lab
from vsketchdlc.validation.lab import Lab, missing_rights

from .event import event_rows
from .rows import Row, median_with_interval, row

WORKER = Path(__file__).with_name("step_worker.py")
LANES = 4


@dataclass(frozen=True)
class Training:
    """A network of Gluon's model zoo, the width of its images and the images of a batch."""

    model: str
    image: int
    batch: int = 1


TRAININGS = (Training("alexnet", 224), Training("resnet50_v1", 96))
#: Which cost of `event.py` each kind of record has.
COST_OF_KIND = {
    "mark": "one record",
    "sample": "one record",
    "other": "one record",
    "engine": "engine event (push, ready, done)",
    "mpi": "MPI call",
    "tcp": "TCP send or receive",
}


def step_rows(quick: bool, models: tuple[str, ...] = ()) -> Iterator[Row]:
    """Relative cost for a training step, cost of its events, memory of a traced rank; per model."""
    costs = {made["variant"]: made["value"] for made in event_rows(quick=True)}
    for training in TRAININGS:
        if models and training.model not in models:
            continue
        found = _run(training, pairs=8 if quick else 120)
        step_s = found["step_s"]
        case = f"step {training.model} ({step_s * 1e3:.0f} ms)"
        for variant, values in found["relative"].items():
            target = 1.0 if variant == "traced" else None
            middle, low, high = median_with_interval(values)
            yield row(case, variant, middle, "%", "lower", target, len(values), [low, high])
        per_step = found["records_per_step"]
        share = 100e-9 * sum(per_step[kind] * costs[COST_OF_KIND[kind]] for kind in per_step) / step_s
        counted = f"{sum(per_step.values()):.0f} events x their ns"
        yield row(case, counted, share, "%", "lower", 0.2, 1, None)
        hook = 100 * found["hook_s_per_step"] / step_s
        yield row(case, "start-up hook, Python", hook, "%", "lower", None, 1, None)
        yield row(f"memory {training.model}", "traced", found["memory_mb"], "MB", "lower", 64.0, 1, None)
        yield row(f"threads {training.model}", "added", found["threads_added"], "", "lower", 0.0, 1, None)


def _run(training: Training, pairs: int) -> dict[str, Any]:
    """What the worker on rank 0 found; in the lab, or on loopback without the lanes where there is none."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        answer = folder / "answer.json"
        options = [training.model, training.image, training.batch, pairs, answer]
        worker = [sys.executable, str(WORKER), *map(str, options)]
        ours = [sys.executable, "-m", "vsketchdlc"]
        traced = [*ours, "trace", "--armed", "--quiet", "-o", str(folder / "trace"), "--"]
        if missing_rights():
            launch = (
                "mpirun --allow-run-as-root --bind-to none --mca btl tcp,self --mca btl_tcp_if_include lo"
            )
            launch += " --mca mpi_yield_when_idle 1 -np 2"
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run(
                [*traced, *launch.split(), *worker], env=environment, check=True, stdout=sys.stderr
            )
        else:
            lab = stack.enter_context(Lab(demo_lab(), shared=[folder]))
            launch = "mpirun --bind-to none -np 2 -H h0,h1"
            lanes = [*ours, "run", "--aux", str(LANES), "--"]
            lab.run("h0", [*traced, *lanes, *launch.split(), *worker], check=True, stdout=sys.stderr)
        found: dict[str, Any] = json.loads(answer.read_text())
        return found
