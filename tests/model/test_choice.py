import dataclasses

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.choice import choose
from vsketchdlc.model.prediction import predict


@pytest.fixture
def predicted(demo):
    """A function that makes predictions with given step times and half-widths by lane count."""
    one = predict(demo, intervals=False)

    def make(times, error=0.02):
        return [
            dataclasses.replace(
                one,
                scenario=demo.replaced(aux=aux),
                step_s=step,
                low_s=step * (1 - error),
                high_s=step * (1 + error),
            )
            for aux, step in times.items()
        ]

    return make


def test_the_fewest_lanes_within_one_percent_of_the_best(predicted):
    choice = choose(predicted({0: 4.0, 1: 3.0, 2: 1.505, 3: 1.50, 4: 1.50}))
    assert choice.aux == 2
    assert "2.66 times as fast" in choice.reason


def test_stock_when_the_gain_is_inside_the_models_error_and_it_says_what_to_measure(predicted):
    choice = choose(predicted({0: 1.0, 2: 0.93}, error=0.2))
    assert choice.aux == 0
    assert "within the model's error" in choice.reason and "measure aux 0 and 2" in choice.reason


def test_the_same_gain_is_taken_when_the_error_is_small(predicted):
    assert choose(predicted({0: 1.0, 2: 0.93}, error=0.02)).aux == 2


def test_stock_when_the_gain_is_not_worth_it(predicted):
    choice = choose(predicted({0: 1.0, 2: 0.93}), min_gain=0.1)
    assert choice.aux == 0 and "10%" in choice.reason


def test_stock_when_it_is_the_best(predicted):
    assert choose(predicted({0: 1.0, 1: 1.2, 2: 1.0})).aux == 0


def test_without_stock_the_best_is_chosen(predicted):
    assert choose(predicted({2: 1.0, 3: 0.8})).aux == 3


def test_nothing_to_choose_from_is_refused():
    with pytest.raises(UserError):
        choose([])
