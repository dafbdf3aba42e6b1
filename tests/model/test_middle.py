"""The mean of the middle half: no jump between two groups, no say for a hiccup."""

import math

import pytest
from vsketchdlc.model.middle import middle_mean


def test_it_is_the_mean_of_the_middle_half():
    assert middle_mean([0, 1, 2, 3]) == pytest.approx(1.5)
    assert middle_mean([1, 2, 3, 100]) == pytest.approx(2.5)


def test_a_quarter_that_cuts_a_value_counts_it_in_part():
    # Of five, 1.25 to 3.75 count: three quarters of the second and of the fourth, all of the third.
    assert middle_mean([0, 1, 2, 5, 9]) == pytest.approx((0.75 * 1 + 2 + 0.75 * 5) / 2.5)


def test_two_groups_of_equal_size_give_what_lies_between():
    assert middle_mean([4, 4, 4, 8, 8, 8]) == pytest.approx(6)


def test_one_value_is_itself_and_none_is_not_a_number():
    assert middle_mean([7.0]) == 7.0
    assert math.isnan(middle_mean([]))
