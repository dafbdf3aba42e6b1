"""What the installed Horovod and MXNet write themselves is imported as what was done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vsketchdlc.tracer.imports.reading import read_foreign

pytestmark = pytest.mark.live

DATA = Path(__file__).parents[2] / "data" / "tracer"
STEPS, TENSORS, STEP_BYTES = 4, 6, 104_104  # of train_tiny.py


def run(*command: object, **environment: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    known = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **environment}
    done = subprocess.run(
        [*map(str, command)], env=known, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_timeline_of_horovod(tmp_path):
    mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    mpirun += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "-np", "2"]
    program = [sys.executable, DATA / "train_tiny.py", 60]
    run(*mpirun, *program, HOROVOD_TIMELINE=str(tmp_path / "t.json"), HOROVOD_TIMELINE_MARK_CYCLES="1")
    answer = read_foreign([tmp_path / "t.json"])
    events = answer.rows.events().to_pandas()
    assert answer.meta.ranks == 2 and len(answer.meta.tensors) == TENSORS
    reduced = events[events.kind == "allreduce"].groupby("step").bytes.sum().to_dict()
    # of 60 steps only the first are asked for: Horovod's writer may not get to the last ones before the process ends
    assert {step: reduced[step] for step in range(STEPS)} == dict.fromkeys(range(STEPS), STEP_BYTES)
    assert events[events.kind == "done"].groupby("step").size()[0] == TENSORS
    assert len(events[events.kind == "broadcast"]) == TENSORS
    assert answer.rows.samples().num_rows > STEPS


def test_a_profile_of_mxnet(tmp_path):
    run(sys.executable, DATA / "profile_tiny.py", tmp_path / "p.json", STEPS)
    answer = read_foreign([tmp_path / "p.json"])
    phases = answer.rows.events().to_pandas().query("track == 'step'").sort_values("t_start_ns")
    assert list(zip(phases.step, phases.kind, strict=True)) == [
        (step, kind) for step in range(STEPS) for kind in ("forward", "backward", "update")
    ]
