"""Lanes change the speed of a training, never its numbers.

With two ranks the order of a sum cannot matter (a + b = b + a), so twenty steps from the same seeds must end
in the same parameters bit for bit: stock twice (the control), then with one and with four lanes.
"""

import hashlib
import sys
import time
from pathlib import Path

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

TRAINING = Path(__file__).parents[2] / "examples" / "train_mxnet.py"


@pytest.mark.live
@pytest.mark.lab
@pytest.mark.slow
def test_twenty_steps_end_in_the_same_bits(lab_rights, tmp_path):
    def parameters(name, aux):
        file = tmp_path / name
        words = [sys.executable, "-m", "vsketchdlc", "run", "--aux", str(aux), "--"]
        words += ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1", sys.executable, str(TRAINING)]
        words += ["--model", "squeezenet1.1", "--batch", "2", "--steps", "20", "--save", str(file)]
        lanes_seen = 0
        with lab.start("h0", words) as training:
            while training.poll() is None:
                now = [process.name for process in lab.processes("h1")].count("fasthvd-lane")
                lanes_seen = max(lanes_seen, now)
                time.sleep(0.1)
        assert training.returncode == 0
        assert lanes_seen == aux  # or the same bits would prove nothing
        return hashlib.sha256(file.read_bytes()).hexdigest()

    with Lab(LabSpec(hosts=2, nic_bits_per_s=4e9), shared=[tmp_path]) as lab:
        stock = parameters("stock", 0)
        assert parameters("stock-again", 0) == stock, (
            "the control: stock Horovod itself is not repeatable here"
        )
        assert parameters("one-lane", 1) == stock
        assert parameters("four-lanes", 4) == stock
