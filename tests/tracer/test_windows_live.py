"""What a user starts and stops: an armed job by signal and from the script, every nth step, a rank that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from vsketchdlc.tracer.trace import Trace

pytestmark = pytest.mark.live

TINY = (Path(__file__).parents[1] / "data" / "tracer" / "train_tiny.py").read_text()
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
LAUNCH = [
    "mpirun",
    "--allow-run-as-root",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "-np",
    "2",
]
LAUNCH += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", sys.executable]


def command(tmp_path, before_each_step, steps, *options):
    """``vsketchdlc trace`` of train_tiny.py with a line of its own before each step."""
    script = tmp_path / "train.py"
    loop = f"for _step in range(steps):\n    {before_each_step}\n"
    script.write_text("import os, time, vsketchdlc\n" + TINY.replace("for _step in range(steps):\n", loop))
    traced = [str(BIN / "vsketchdlc"), "trace", "-o", str(tmp_path / "trace"), *options, "--"]
    return [*traced, *LAUNCH, str(script), str(steps)]


def steps_of(tmp_path):
    found = Trace.open(tmp_path / "trace").query(
        "select rank, list(distinct step order by step) as steps from events where kind = 'done' and step >= 0 "
        "group by rank order by rank"
    )
    return [list(steps) for steps in found["steps"]]


def test_the_script_starts_and_stops_an_armed_recording(tmp_path):
    line = "{3: vsketchdlc.start_trace, 6: vsketchdlc.stop_trace}.get(_step, bool)()"
    subprocess.run(command(tmp_path, line, 9, "--armed"), env=ENVIRONMENT, check=True, timeout=120)
    assert steps_of(tmp_path) == [[3, 4, 5], [3, 4, 5]]


def test_a_signal_to_the_wrapper_starts_and_stops_an_armed_recording(tmp_path):
    line = "print('at', _step, flush=True); time.sleep(0.05)"
    job = subprocess.Popen(
        command(tmp_path, line, 60, "--armed"), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    seen = 0
    for text in job.stdout:
        if text.startswith("at 10") or text.startswith("at 30"):
            seen += 1
            if seen in (1, 3):  # the first rank to get there
                job.send_signal(signal.SIGUSR2)
    assert job.wait() == 0
    for steps in steps_of(tmp_path):  # the rank that printed may be a step or two ahead of the other
        assert 7 <= steps[0] <= 29 and steps[-1] <= 59 and len(steps) == steps[-1] - steps[0] + 1


def test_every_second_step(tmp_path):
    subprocess.run(
        command(tmp_path, "pass", 8, "--steps", "2:7", "--every", "2"), env=ENVIRONMENT, check=True
    )
    assert steps_of(tmp_path) == [[2, 4, 6], [2, 4, 6]]


def test_a_rank_that_is_killed_leaves_what_it_had(tmp_path):
    line = "_step == 5 and hvd.rank() == 1 and (time.sleep(0.1), os.kill(os.getpid(), 9))"
    done = subprocess.run(
        command(tmp_path, line, 50), env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "what was recorded until then is kept" in done.stderr
    first, second = steps_of(tmp_path)
    assert first[:5] == second[:5] == [0, 1, 2, 3, 4]


def test_the_size_limit_is_told(tmp_path):
    line = "time.sleep(0.001)"
    done = subprocess.run(
        command(tmp_path, line, 400, "--max-mb", "1"),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    trace = Trace.open(tmp_path / "trace")
    assert trace.meta.lost_events > 0
    assert f"{trace.meta.lost_events} events were not recorded" in done.stderr
