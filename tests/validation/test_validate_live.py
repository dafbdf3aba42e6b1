"""The smoke suite for real: calibrate, predict, then train; and a stopped suite goes on where it was."""

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
