"""The smoke suite for real: calibrate, predict, then train; and a stopped suite goes on where it was."""

import json

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
    # What the machine does beside the tests is not in the model: the order of the counts stands even then.
    assert case.in_order, json.dumps([vars(point) for point in case.points], default=vars)
    assert case.chosen_aux > 0

    Campaign(suite, tmp_path, said.append, repeats=0).run()
    assert len(Records.read(tmp_path, suite).lines) == len(kinds)
