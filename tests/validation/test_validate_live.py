"""The smoke suite for real: calibrate, predict, then train; and a stopped suite goes on where it was."""

import os
import signal
import subprocess
import sys
import time

import pytest
from vsketchdlc.validation.campaign import Campaign
from vsketchdlc.validation.records import Records
from vsketchdlc.validation.scores import score
from vsketchdlc.validation.suite import load_suite


@pytest.mark.live
@pytest.mark.lab
@pytest.mark.slow
def test_the_smoke_suite_predicts_what_then_happens(lab_rights, tmp_path):
    suite, said = load_suite("smoke"), []
    Campaign(suite, tmp_path, said.append, repeats=0).run()
    records = Records.read(tmp_path, suite)
    kinds = [line["kind"] for line in records.lines]
    assert kinds == ["suite", "calibration", "prediction", "run", "finished"], (kinds, said)
    (case,) = score(suite, records).cases
    stock, *_, most = case.points
    assert case.chosen_aux > 0 and most.step_s < stock.step_s
    assert most.measured.step_s < stock.measured.step_s
    # What the machine does beside the tests is not in the model: the rest is judged where the runs were alone.
    if case.relied_on:
        assert case.in_order and max(abs(point.error) for point in case.points) <= 0.30, case.points

    Campaign(suite, tmp_path, said.append, repeats=0).run()
    assert len(Records.read(tmp_path, suite).lines) == len(kinds)


@pytest.mark.live
@pytest.mark.lab
def test_ctrl_c_ends_a_suite_and_its_lab_and_the_log_stays(lab_rights, leaves_nothing, tmp_path):
    words = [sys.executable, "-m", "vsketchdlc", "validate", "--suite", "smoke", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "calibration run" in line:
            break
    time.sleep(5)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.rstrip().endswith("stopped; the same command goes on where it was")
    assert (tmp_path / "out" / "results.jsonl").read_text().count("\n") == 1
