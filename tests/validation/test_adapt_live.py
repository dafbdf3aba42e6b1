"""A training whose network is not that of its trial: `tune --adapt` says so, probes again, and tells the next run's command."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

pytestmark = [pytest.mark.live, pytest.mark.lab, pytest.mark.slow]
TRAINING = Path(__file__).parents[2] / "examples" / "train_mxnet.py"


def test_a_flow_cap_that_comes_after_the_trial_asks_for_more_lanes(lab_rights, leaves_nothing, tmp_path):
    """The trial finds 400 Mbit/s for one flow as for several; the training then gets 100 Mbit/s a flow."""
    told = tmp_path / "tune.json"
    tune = [sys.executable, "-m", "vsketchdlc", "tune", "--adapt", "--no-cache", "--aux-max", "4"]
    tune += ["--trial-steps", "5", "--budget", "8s", "-o", str(tmp_path / "tune"), "--json", str(told), "--"]
    mpirun = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]
    train = [sys.executable, str(TRAINING), "--model", "squeezenet1.1", "--batch", "2", "--steps", "30"]
    with Lab(LabSpec(hosts=2, nic_bits_per_s=400e6), shared=[tmp_path]) as lab:
        job = lab.start("h0", [*tune, *mpirun, *train], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 150
        while not told.exists() and time.monotonic() < deadline and job.poll() is None:
            time.sleep(0.02)
        for host in lab.hosts:
            lab.set_flow_cap(host, 100e6)
        said = job.communicate(timeout=240)[1]
    assert job.returncode == 0, said
    before = json.loads(told.read_text())["chosen_aux"]
    assert "outside the prediction" in said
    assert "not as predicted: lane probe" in said
    found = re.search(r"next run: vsketchdlc run --aux (\d+) -- mpirun", said)
    assert found, said
    assert int(found.group(1)) > before
    assert (tmp_path / "tune" / "adapted" / "calibration.json").exists()
