"""Tuning and training for real, between lab hosts: the first steps are compared, the answer is found again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

TRAINING = Path(__file__).parents[2] / "examples" / "train_mxnet.py"
MPIRUN = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]


@pytest.mark.live
@pytest.mark.lab
@pytest.mark.slow
def test_a_tuned_training_tells_how_its_first_steps_compare(lab_rights, leaves_nothing, tmp_path):
    options = ["--model", "squeezenet1.1", "--batch", "1", "--steps", "24"]
    command = [*MPIRUN, sys.executable, str(TRAINING), *options]
    words = [sys.executable, "-m", "vsketchdlc", "tune", "--aux-max", "2", "--trial-steps", "4"]
    words += [
        "--budget",
        "5s",
        "--all-knobs",
        "-o",
        str(tmp_path / "kept"),
        "--json",
        str(tmp_path / "answer"),
    ]
    with Lab(LabSpec(hosts=2, nic_bits_per_s=1e9, flow_cap_bits_per_s=250e6), shared=[tmp_path]) as lab:
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = lab.run(
            "h0", [*words, "--", *command], env=environment, check=True, timeout=200, stderr=subprocess.PIPE
        )
    answer = json.loads((tmp_path / "answer").read_text())
    assert "vsketchdlc: 20 steps took" in done.stderr
    assert f"predicted were {answer['predicted'][answer['chosen_aux']]['step_s']:.4g} s" in done.stderr
    assert [row["aux"] for row in answer["predicted"]] == [0, 1, 2]
    kept = list((tmp_path / "cache").rglob("*.json"))
    assert len(kept) == (0 if answer["notes"] else 1)  # beside other programs it says so, and keeps nothing


PROBE = """
import sys
from vsketchdlc.fasthvd.probe import probe_lanes
probe_lanes(sys.argv[1:], most=2, rounds=1000, budget_s=60.0)
"""


@pytest.mark.live
@pytest.mark.lab
def test_ctrl_c_in_the_lane_probe_leaves_nothing_running(lab_rights, leaves_nothing, ctrl_c, tmp_path):
    with Lab(LabSpec(hosts=2, nic_bits_per_s=1e9, flow_cap_bits_per_s=250e6), shared=[tmp_path]) as lab:
        assert ctrl_c(lab, [sys.executable, "-c", PROBE, *MPIRUN, sys.executable, "never.py"]) != 0
