"""Real MXNet, Horovod and Open MPI with two ranks, traced: what the events say is what was done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vsketchdlc.tracer.trace import Trace

pytestmark = pytest.mark.live

DATA = Path(__file__).parents[1] / "data" / "tracer"
STEPS = 6
TENSORS, STEP_BYTES = 6, 104_104  # of train_tiny.py
BIN = Path(sys.executable).parent


def traced(
    output: Path, script: str, *arguments: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """``vsketchdlc trace`` of two ranks on this machine that talk over TCP."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
    launch = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    launch += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "-np", "2"]
    program = [sys.executable, str(DATA / script), *arguments]
    command = [str(BIN / "vsketchdlc"), "trace", "-o", str(output), *options, "--", *launch, *program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    output = tmp_path_factory.mktemp("live") / "trace"
    scratch = output.parent / "scratch"
    scratch.mkdir()
    done = traced(output, "train_tiny.py", str(STEPS), options=("--scratch", str(scratch)))
    assert done.returncode == 0, done.stderr
    return Trace.open(output)


def count(trace: Trace, where: str) -> int:
    return int(trace.query(f"select count(*) as n from events where {where}")["n"].iloc[0])


def test_every_gradient_of_every_step_and_rank_is_there_once(trace):
    for kind in ("push", "ready", "enqueue", "negotiate", "done"):
        assert count(trace, f"kind = '{kind}' and tensor is not null and step >= 0") == TENSORS * STEPS * 2


def test_its_stamps_are_in_order(trace):
    table = trace.query(
        "select max(t_end_ns) filter (kind='push') as push, max(t_start_ns) filter (kind='push') as pushed, "
        "max(t_end_ns) filter (kind='ready') as ready, max(t_end_ns) filter (kind='enqueue') as enqueue, "
        "max(t_end_ns) filter (kind='negotiate') as agreed, max(t_start_ns) filter (kind='done') as reduced, "
        "max(t_end_ns) filter (kind='done') as done from events where tensor is not null group by rank, step, tensor"
    )
    assert (table["pushed"] <= table["ready"]).all()
    assert (table["ready"] <= table["enqueue"]).all()
    assert (table["enqueue"] <= table["agreed"]).all()
    assert (table["agreed"] <= table["reduced"]).all()
    assert (table["reduced"] <= table["done"]).all()


def test_bytes_add_up(trace):
    sums = trace.query("select rank, step, kind, sum(bytes) as n from events where step >= 0 and "
                       "kind in ('allreduce', 'done') group by all")  # fmt: skip
    assert (sums["n"] == STEP_BYTES).all()
    members = trace.query(
        "select a.bytes as bucket, b.bytes as members from "
        "(select rank, step, bucket, bytes from events where kind = 'allreduce' and step >= 0) a join "
        "(select rank, step, bucket, sum(bytes) as bytes from events where kind = 'done' group by all) b "
        "using (rank, step, bucket)"
    )
    assert (members["bucket"] == members["members"]).all()


def test_steps_have_forward_backward_and_update_in_order(trace):
    table = trace.query(
        "select max(t_start_ns) filter (kind='forward') as f, max(t_start_ns) filter (kind='backward') as b, "
        "max(t_end_ns) filter (kind='backward') as e, max(t_end_ns) filter (kind='update') as u "
        "from events where track = 'step' group by rank, step"
    )
    assert len(table) == 2 * STEPS
    assert (table["f"] <= table["b"]).all()
    assert (table["b"] <= table["e"]).all()
    assert (table["e"] <= table["u"]).all()


def test_broadcasts_before_the_first_step_are_told_apart(trace):
    assert count(trace, "kind = 'broadcast' and step = -1") == TENSORS * 2
    assert count(trace, "kind = 'allreduce' and step = -1") == 0


def test_layers_and_settings_are_known(trace):
    layers = {tensor.layer for tensor in trace.meta.tensors}
    assert layers == {"conv0", "dense0", "dense1"}
    assert trace.meta.batch_per_rank == 8
    assert trace.meta.settings["mpi"] == "Open MPI"
    assert trace.meta.settings["fusion_threshold_bytes"] == 128 << 20


def test_the_questions_have_answers(trace):
    breakdown = trace.step_breakdown()
    assert len(breakdown) == 2 * (STEPS - 1)
    assert (breakdown["step_s"] > 0).all()
    assert (breakdown[["forward_s", "backward_s", "exposed_s"]].sum() > 0).all()
    assert len(trace.layers()) == 3
    assert len(trace.stragglers()) == 2
    assert "bottleneck" in trace.verdict()


def test_no_raw_log_is_left_behind(trace):
    assert not list((trace.path.parent / "scratch").iterdir())


def test_all_collectives_and_groups(tmp_path):
    done = traced(tmp_path / "trace", "collectives.py")
    assert done.returncode == 0, done.stderr
    trace = Trace.open(tmp_path / "trace")
    found = trace.query("select kind, sum(bytes) as n from events where rank = 0 and track = 'horovod' and "
                        "kind not in ('negotiate', 'fuse_in', 'fuse_out') group by kind")  # fmt: skip
    sums = dict(zip(found["kind"], found["n"], strict=True))
    assert sums == {
        "allgather": 2 * 4 * 8 * 4,
        "alltoall": 2 * 2 * 3 * 4,
        "reducescatter": 2 * 4 * 8 * 4,
        "broadcast": 4 * 8 * 4,
        "allreduce": 4 * 8 * 4 + 3 * (8 * 4 * 4 + 4 * 4),
    }
    grouped = [tensor.parameter for tensor in trace.meta.tensors if "of2" in tensor.name]
    assert grouped == ["dense0_bias", "dense0_weight"]
    assert any("group" in note for note in trace.meta.notes)


def test_a_window_and_a_failing_command(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text((DATA / "train_tiny.py").read_text() + "\nsys.exit(3)\n")
    done = traced(tmp_path / "trace", str(script), "8", options=("--steps", "2:5"))
    assert done.returncode == 3
    assert "ended with status 3" in done.stderr
    trace = Trace.open(tmp_path / "trace")
    steps = trace.query("select distinct step from events where kind = 'done' order by step")
    assert steps["step"].tolist() == [2, 3, 4]
    assert sorted(trace.step_times()["step"].unique()) == [2, 3, 4]


def test_a_trial_ends_on_all_ranks_together(tmp_path):
    done = traced(tmp_path / "trace", "train_tiny.py", "1000000", options=("--stop-after", "4"))
    assert done.returncode == 0, done.stderr
    steps = Trace.open(tmp_path / "trace").query("select max(step) as n from events where kind = 'done'")
    assert steps["n"].iloc[0] == 3


def test_nothing_recorded_keeps_the_older_trace(tmp_path, trace):
    done = traced(trace.path, str(tmp_path / "missing.py"))
    assert done.returncode not in (0, None)
    assert "nothing was recorded" in done.stderr
    assert Trace.open(trace.path).meta.ranks == 2
