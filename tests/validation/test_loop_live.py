"""The whole loop on real runs: trial, probe, prediction, and training at the counts that were predicted.

A small network on slow emulated links; no timing is asserted, only that predicted and measured step times
fall in the same order.
"""

import json
import sys
from pathlib import Path
from statistics import median

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

TRAINING = Path(__file__).parents[2] / "examples" / "train_mxnet.py"
MPIRUN = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]
VSKETCHDLC = [sys.executable, "-m", "vsketchdlc"]


def training(steps, result):
    options = ["--model", "squeezenet1.1", "--batch", "2", "--steps", str(steps)]
    return [*MPIRUN, sys.executable, str(TRAINING), *options, "--json", str(result)]


@pytest.fixture(scope="module")
def slow_network(lab_rights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    with Lab(LabSpec(hosts=2, nic_bits_per_s=400e6, flow_cap_bits_per_s=100e6), shared=[folder]) as lab:
        yield lab, folder


@pytest.fixture(scope="module")
def tuned(slow_network):
    lab, folder = slow_network
    words = [
        "tune",
        "--dry-run",
        "--no-cache",
        "--quiet",
        "--aux-max",
        "3",
        "--trial-steps",
        "5",
        "--budget",
        "6s",
    ]
    words += ["-o", str(folder / "tune"), "--json", str(folder / "tune.json"), "--"]
    lab.run("h0", [*VSKETCHDLC, *words, *training(1000, folder / "trial.json")], check=True, timeout=120)
    return json.loads((folder / "tune.json").read_text()), folder / "tune"


@pytest.mark.live
@pytest.mark.lab
@pytest.mark.slow
def test_predicted_and_measured_step_times_fall_in_the_same_order(slow_network, tuned):
    lab, folder = slow_network
    predicted = {row["aux"]: row["step_s"] for row in tuned[0]["predicted"]}
    measured = {}
    for aux in (0, 1, 3):
        result = folder / f"aux{aux}.json"
        words = [*VSKETCHDLC, "run", "--aux", str(aux), "--", *training(8, result)]
        lab.run("h0", words, check=True, timeout=120)
        measured[aux] = median(json.loads(result.read_text())["step_s"][2:])
    assert measured[0] > measured[3]
    assert sorted(measured, key=measured.get) == sorted(measured, key=predicted.get), (measured, predicted)
    assert tuned[0]["chosen_aux"] > 0


@pytest.mark.live
@pytest.mark.lab
def test_the_trial_can_be_replayed(tuned):
    """How closely is held on a recorded trace (tests/replay): here the machine may be doing anything beside."""
    from vsketchdlc.model.calibration import Calibration
    from vsketchdlc.replay.offline import replay_offline
    from vsketchdlc.tracer.trace import Trace

    _, folder = tuned
    replay = replay_offline(Trace.open(folder / "trace"), Calibration.load(folder / "calibration.json"))
    assert replay.same_settings
    assert {phase.kind for phase in replay.phases} >= {"forward", "backward", "allreduce", "update"}
