"""Tuning's own arithmetic; its live run in the lab is test_tuning_live.py."""

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.fasthvd.probe import lane_counts
from vsketchdlc.fasthvd.probe_worker import ProbePlan
from vsketchdlc.fasthvd.tune_command import _fraction
from vsketchdlc.fasthvd.tuning import Tuning, default_aux_max
from vsketchdlc.model.choice import Choice


class Step:
    def __init__(self, step_s):
        self.step_s = step_s


def tuning(aux, seconds=60.0):
    return Tuning(Choice(aux, ""), [Step(2.0), Step(1.5), Step(1.0)], None, None, None, seconds)


def test_what_tuning_cost_is_earned_back_after_so_many_steps():
    assert tuning(2).gain_s == 1.0
    assert tuning(2).payback_steps == 61
    assert tuning(0).payback_steps is None


def test_the_probe_visits_powers_of_two_and_both_ends():
    assert lane_counts(6) == (0, 1, 2, 4, 6)
    assert lane_counts(4) == (0, 1, 2, 4)
    assert lane_counts(1) == (0, 1)


def test_the_plan_survives_the_environment():
    plan = ProbePlan((0, 1, 2), (1 << 20,), 3, 2.5, "/some where/probe.json")
    text = plan.to_json()
    assert ProbePlan.from_json(text) == plan
    assert ";" not in text  # Open MPI separates the variables of its list with it


def test_more_lanes_than_twice_the_cores_only_take_turns():
    assert default_aux_max(1) == 4
    assert default_aux_max(4) == 8
    assert default_aux_max(64) == 16
    assert default_aux_max(None) == 8


@pytest.mark.parametrize(("text", "value"), [("3%", 0.03), ("0.05", 0.05), ("0", 0.0)])
def test_a_gain_is_a_percentage_or_a_share(text, value):
    assert _fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "-1%", "100%", "nan"])
def test_an_impossible_gain_is_refused(text):
    with pytest.raises(UserError, match="--min-gain"):
        _fraction(text)
