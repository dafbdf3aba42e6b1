"""What the first real steps teach, where they were not as predicted."""

import dataclasses
import json

import pytest
from vsketchdlc.fasthvd import training
from vsketchdlc.fasthvd.knobs import Knobs
from vsketchdlc.fasthvd.tuning import TuningWishes
from vsketchdlc.fasthvd.tuning_answer import PredictedStep, TuningAnswer

COMMAND = ["mpirun", "-np", "2", "python", "train.py"]
WISHES = TuningWishes(aux_max=2, min_gain=0.03)


def answer(aux, *seconds, knobs=None):
    steps = [PredictedStep(n, s, 0.9 * s, 1.1 * s, s, s, 0.0) for n, s in enumerate(seconds)]
    return TuningAnswer(aux, "because", steps, 60.0, "/kept", knobs)


@pytest.fixture
def learns(monkeypatch, tmp_path):
    """The sentence after a training chosen as `before`, whose first steps calibrate to `again`."""

    def told(before, again):
        monkeypatch.setattr(training.LaneProbe, "load", lambda path: None)
        monkeypatch.setattr(training.Trace, "open", lambda path: None)
        monkeypatch.setattr(training, "conclude", lambda *_: again)
        return training.next_run(before, COMMAND, tmp_path, WISHES, tmp_path / "first-steps")

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
    assert "env HOROVOD_FUSION_THRESHOLD=16777216 HOROVOD_CYCLE_TIME=2.5 vsketchdlc run --aux 1" in learns(
        answer(1, 2.0, 1.0, 1.0), again
    )


@pytest.mark.parametrize("within,word", [(True, "as predicted"), (False, "next run")])
def test_first_steps_as_predicted_teach_nothing(monkeypatch, tmp_path, within, word):
    said = []

    def trained(launch):
        (tmp_path / "first-steps.json").write_text(json.dumps({"within": within}))
        return 3

    monkeypatch.setattr(training, "watched", lambda *_: None)
    monkeypatch.setattr(training, "run", trained)
    monkeypatch.setattr(training, "next_run", lambda *_: "next run: ...")
    status = training.train_and_adapt(answer(1, 2.0, 1.0), COMMAND, tmp_path, WISHES, said.append)
    assert status == 3 and word in said[0]


def test_a_training_of_few_steps_says_so(monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(training, "watched", lambda *_: None)
    monkeypatch.setattr(training, "run", lambda launch: 0)
    training.train_and_adapt(answer(1, 2.0, 1.0), COMMAND, tmp_path, WISHES, said.append)
    assert "fewer than 22 steps" in said[0]
