"""What the first real steps teach, where they were not as predicted."""

import dataclasses
import json

import pytest
from vsketchdlc.fasthvd import training
from vsketchdlc.fasthvd.knobs import Knobs
from vsketchdlc.fasthvd.tuning import TuningWishes
from vsketchdlc.fasthvd.tuning_answer import PredictedStep, TuningAnswer
from vsketchdlc.model.probe import LaneProbe, ProbeRow

COMMAND = ["mpirun", "-np", "2", "python", "train.py"]
WISHES = TuningWishes(aux_max=2, min_gain=0.03)


def answer(aux, *seconds, knobs=None):
    steps = [PredictedStep(n, s, 0.9 * s, 1.1 * s, s, s, 0.0) for n, s in enumerate(seconds)]
    return TuningAnswer(aux, "because", steps, 60.0, "/kept", knobs)


@pytest.fixture
def learns(monkeypatch, tmp_path):
    """The sentence after a training chosen as `before`, whose first steps calibrate to `again`."""

    def told(before, again):
        monkeypatch.setattr(training.Trace, "open", lambda path: None)
        monkeypatch.setattr(training, "conclude", lambda *_: again)
        return training.next_run(before, COMMAND, tmp_path, WISHES, tmp_path / "first-steps", None)

    return told


def test_a_better_count_is_told_with_its_command(learns):
    # Steps take twice what was predicted: what is held against each other is both counts as they are now known.
    said = learns(answer(1, 2.0, 1.0, 0.98), answer(2, 4.0, 2.0, 1.5))
    assert "2 lanes should take 1.5 s a step instead of 2 s" in said
    assert said.endswith("next run: vsketchdlc run --aux 2 -- mpirun -np 2 python train.py")


def test_the_same_choice_stands(learns):
    assert "1 lanes are still the choice" in learns(answer(1, 2.0, 1.0, 1.0), answer(1, 4.0, 2.0, 2.0))


def test_a_gain_below_the_least_wanted_is_not_worth_a_change(learns):
    said = learns(answer(1, 2.0, 1.0, 1.0), answer(2, 4.0, 2.0, 1.97))
    assert "not for sure; 1 stay the choice" in said


def test_other_knobs_are_part_of_the_command(learns):
    again = dataclasses.replace(
        answer(1, 4.0, 2.0, 2.0, knobs=Knobs(16 << 20, 2.5e-3)),
        chosen=PredictedStep(1, 1.5, 1.4, 1.6, 1.5, 1.5, 0.0),
    )
    said = learns(answer(1, 2.0, 1.0), again)
    assert "vsketchdlc run --aux 1 --fusion-threshold-mb 16 --cycle-time-ms 2.5 -- mpirun" in said


@pytest.mark.parametrize("within,word", [(True, "as predicted"), (False, "next run")])
def test_first_steps_as_predicted_teach_nothing(monkeypatch, tmp_path, within, word):
    said = []

    def trained(launch):
        (tmp_path / "first-steps.json").write_text(json.dumps({"within": within}))
        return 3

    monkeypatch.setattr(training, "watched", lambda *_: None)
    monkeypatch.setattr(training, "run", trained)
    monkeypatch.setattr(training.LaneProbe, "load", lambda path: None)
    monkeypatch.setattr(training, "next_run", lambda *_: "next run: ...")
    status = training.train_and_adapt(answer(1, 2.0, 1.0), COMMAND, tmp_path, WISHES, said.append)
    assert status == 3 and word in said[0]


def test_a_training_of_few_steps_says_so(monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(training, "watched", lambda *_: None)
    monkeypatch.setattr(training, "run", lambda launch: 0)
    training.train_and_adapt(answer(1, 2.0, 1.0), COMMAND, tmp_path, WISHES, said.append)
    assert "fewer than 22 steps" in said[0]


def test_steps_that_were_not_as_predicted_are_judged_with_a_new_probe(monkeypatch, tmp_path):
    """The network may have changed since: the old probe would speak for the old one."""
    said, asked = [], []

    def trained(launch):
        (tmp_path / "first-steps.json").write_text(json.dumps({"within": False}))
        return 0

    def probed(command, *, most, budget_s):
        asked.append((command, most))
        return LaneProbe(2, 1, [ProbeRow(1, 1 << 20, (0.1,), None, None)])

    monkeypatch.setattr(training, "watched", lambda *_: None)
    monkeypatch.setattr(training, "run", trained)
    monkeypatch.setattr(training, "probe_lanes", probed)
    monkeypatch.setattr(training, "next_run", lambda *words: f"judged with {words[-1].rows[0].seconds}")
    training.train_and_adapt(answer(1, 2.0, 1.0), COMMAND, tmp_path, WISHES, said.append)
    assert asked == [(COMMAND, 2)] and said[-1] == "judged with (0.1,)"
    assert LaneProbe.load(tmp_path / "adapted" / "probe.json").rows[0].bytes == 1 << 20
