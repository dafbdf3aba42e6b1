"""Another tool's trace, played again: what it does not say is filled in, and every such thing is named."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner
from vsketchdlc.cli import app
from vsketchdlc.replay.imported import SIZE_BYTES, imported_workload
from vsketchdlc.replay.offline import replay_offline
from vsketchdlc.replay.subject import live_subject
from vsketchdlc.tracer.trace import TensorInfo, Trace, TraceMeta, write_trace

FOREIGN = Path(__file__).parents[3] / "shared" / "data"
MS = 1_000_000


def imported(folder, rows, **meta):
    events = pd.DataFrame([{"rank": 0, "process": 1, "track": "x", **row} for row in rows])
    return write_trace(folder / "trace", TraceMeta(source="imported:test", **{"ranks": 4, **meta}), events)


def event(kind, start_ms, end_ms, **more):
    return {"kind": kind, "t_start_ns": start_ms * MS, "t_end_ns": end_ms * MS, **more}


def test_gradients_that_the_file_names(tmp_path):
    rows = [
        event("ready", 0, 10, tensor="a", step=0),
        event("ready", 0, 30, tensor="b", step=0),
        event("backward", 5, 40, step=0),
        event("done", 35, 36, tensor="a", bytes=400, step=0),
    ]
    tensors = [TensorInfo("b", None, None, 800, "float32", 0)]
    found = imported_workload(imported(tmp_path, rows, tensors=tensors))
    assert [(t.name, t.bytes) for t in found.workload.tensors] == [("a", 400), ("b", 800)]
    assert [t.ready_s for t in found.workload.tensors] == pytest.approx([0.005, 0.025])
    assert found.workload.backward_s == pytest.approx(0.035)
    assert found.filled == [
        "no forward pass is marked: half of backward, 17.5 ms",
        "no optimizer is marked: it takes no time",
    ]


def test_without_names_every_allreduce_is_a_gradient(tmp_path):
    rows = [
        event("forward", 0, 10, step=0),
        event("backward", 10, 40, step=0),
        event("allreduce", 20, 30, bytes=1000, step=0),
        event("allreduce", 30, 50, bytes=3000, step=0),
        event("allgather", 50, 60, bytes=1, step=0),
        event("update", 50, 55, step=0),
    ]
    found = imported_workload(imported(tmp_path, rows))
    assert [(t.name, t.bytes) for t in found.workload.tensors] == [
        ("allreduce.0", 1000),
        ("allreduce.1", 3000),
    ]
    assert found.filled == [
        "no gradient is named: each of the 2 allreduce calls is one; 1 other collectives are left out"
    ]


def test_a_profile_without_communication(tmp_path):
    rows = [
        event("operator", 0, 5, layer="conv_forward"),
        event("operator", 5, 9, layer="conv_backward"),
        event("operator", 9, 12, layer="conv_backward"),
        event("operator", 12, 14, layer="fc_backward"),
    ]
    found = imported_workload(imported(tmp_path, rows, ranks=1))
    assert [t.bytes for t in found.workload.tensors] == [SIZE_BYTES] * 2
    assert found.ranks == 2
    told = " / ".join(found.filled)
    for what in (
        "marks no steps",
        "no communication",
        "2 of 2 gradients have no size",
        "two ranks on two hosts",
    ):
        assert what in told


def test_only_sends(tmp_path):
    rows = [event("socket_send", 0, 0, bytes=300), event("socket_send", 0, 0, bytes=700)]
    found = imported_workload(imported(tmp_path, rows))
    assert [t.bytes for t in found.workload.tensors] == [1000]
    assert "only 2 sends" in " ".join(found.filled)


def test_it_replays_in_the_simulator_and_says_what_it_assumed(tmp_path):
    rows = [event("backward", 0, 40, step=0), event("allreduce", 20, 30, bytes=1_000_000, step=0)]
    trace = imported(tmp_path, rows)
    result = replay_offline(trace)
    assert result.recorded_step_s is None
    assert result.error is None
    assert result.prediction.step_s > 0.06  # forward, backward, and some communication
    assert "typical values" in result.filled[-1]
    answer = CliRunner().invoke(app, ["replay", str(trace.path)])
    assert answer.exit_code == 0, answer.output
    assert "Filled in: no gradient is named" in answer.stdout
    assert "shows no step's time to compare with" in answer.stdout


def test_it_is_a_subject_of_a_live_replay_too(tmp_path):
    rows = [event("backward", 0, 40, step=0), event("allreduce", 20, 30, bytes=1_000_000, step=0)]
    subject = live_subject(str(imported(tmp_path, rows).path), compute="spin")
    assert subject.workload.gradient_bytes == 1_000_000
    assert subject.filled


@pytest.mark.skipif(not FOREIGN.is_dir(), reason="files of other tools are not here")
@pytest.mark.parametrize(
    "names",
    [
        ["horovod_timeline_bad_durations.json"],
        ["mxnet_profile_cpu_cnn.json.gz"],
        ["kineto_rank0_of_128.json.gz", "kineto_rank1_of_128.json.gz"],
        ["chakra_ring_allreduce_8npu.et"],
    ],
    ids=lambda names: names[0].split(".")[0],
)
def test_real_files_of_other_tools_replay(names, tmp_path):
    words = ["import", "--quiet", *(str(FOREIGN / name) for name in names), "-o", str(tmp_path / "t")]
    assert CliRunner().invoke(app, words).exit_code == 0
    result = replay_offline(Trace.open(tmp_path / "t"))
    assert result.prediction.step_s > 0
    assert result.filled
