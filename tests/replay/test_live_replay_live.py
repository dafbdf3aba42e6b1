"""A recorded run driven over real Horovod between lab hosts, with and without lanes."""

import json
import sys

import pytest
from vsketchdlc.model.workload import GradientTensor, Workload
from vsketchdlc.replay.live import LiveReplay
from vsketchdlc.tracer.trace import Trace
from vsketchdlc.validation.lab import Lab, LabSpec

LAUNCHER = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]


def recorded_trace(folder):
    """Three simulated steps of a small network stand for the recording: only its workload is played."""
    from vsketchdlc.model.cluster import Cluster
    from vsketchdlc.model.prediction import predict
    from vsketchdlc.model.scenario import Scenario

    tensors = tuple(
        GradientTensor(f"t{n}", f"l{n}", 2 << 20, ready_s=0.005 * (n + 1), index=n) for n in range(4)
    )
    workload = Workload("small", tensors, forward_s=0.02, backward_s=0.03, update_s=0.005)
    cluster = Cluster.star(2, cores=1, nic_bits_per_s=400e6, flow_cap_bits_per_s=100e6)
    predict(Scenario(workload, cluster)).to_trace(folder, steps=4)
    return Trace.open(folder)


@pytest.mark.live
@pytest.mark.lab
@pytest.mark.parametrize("compute", ["sleep", "mxnet"])
def test_lanes_speed_up_a_replay_on_the_wire(lab_rights, leaves_nothing, tmp_path, compute):
    recorded_trace(tmp_path / "trace")
    steps = {}
    with Lab(LabSpec(hosts=2, nic_bits_per_s=400e6, flow_cap_bits_per_s=100e6), shared=[tmp_path]) as lab:
        for aux in (0, 3):
            answer = tmp_path / f"{aux}.json"
            words = [
                sys.executable,
                "-m",
                "vsketchdlc",
                "replay",
                str(tmp_path / "trace"),
                "--live",
                "--aux",
                str(aux),
            ]
            words += ["--compute", compute, "--steps", "5", "--json", str(answer), "--", *LAUNCHER]
            lab.run("h0", words, check=True, timeout=120)
            data = json.loads(answer.read_text())
            assert data["ranks"] == 2
            assert len(data["all_step_s"]) == 5
            steps[aux] = LiveReplay(2, aux, data["all_step_s"]).step_s
    assert steps[3] < steps[0]


TRIAL = """
import sys
from pathlib import Path
from vsketchdlc.replay.trial import live_trial
folder = Path(sys.argv[1])
live_trial(str(folder / "trace"), sys.argv[2:])(folder / "trial", 4)
"""


@pytest.mark.live
@pytest.mark.lab
def test_other_hosts_spin_and_a_trial_without_the_script(lab_rights, leaves_nothing, tmp_path):
    recorded_trace(tmp_path / "trace")
    answer = tmp_path / "answer.json"
    words = [sys.executable, "-m", "vsketchdlc", "replay", str(tmp_path / "trace"), "--live", "--steps", "3"]
    words += ["--hosts", "h0,h1,h2", "--compute", "spin", "--threads", "2", "--json", str(answer)]
    with Lab(LabSpec(hosts=3, nic_bits_per_s=1e9), shared=[tmp_path]) as lab:
        lab.run("h0", words, check=True, timeout=120)
        trial = [sys.executable, "-c", TRIAL, str(tmp_path), *LAUNCHER, "python", "never-started.py"]
        lab.run("h0", trial, check=True, timeout=120)
    data = json.loads(answer.read_text())
    assert (data["ranks"], data["threads"], data["same_settings"]) == (3, 2, False)
    traced = Trace.open(tmp_path / "trial")
    assert traced.step_times()["step"].nunique() == 5
    assert set(traced.events(columns=["kind"])["kind"]) >= {"forward", "backward", "allreduce", "update"}
    assert [tensor.name for tensor in traced.meta.tensors] == [f"horovod_allreduce.t{n}" for n in range(4)]


@pytest.mark.live
@pytest.mark.lab
def test_ctrl_c_ends_a_live_replay_and_all_its_ranks(lab_rights, leaves_nothing, ctrl_c, tmp_path):
    recorded_trace(tmp_path / "trace")
    words = [sys.executable, "-m", "vsketchdlc", "replay", str(tmp_path / "trace"), "--live", "--aux", "2"]
    with Lab(LabSpec(hosts=2, nic_bits_per_s=400e6, flow_cap_bits_per_s=100e6), shared=[tmp_path]) as lab:
        assert ctrl_c(lab, [*words, "--steps", "1000", "--", *LAUNCHER]) == 130
