import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vsketchdlc.model.maxmin import Demand, max_min_rates

NAMES = ["cpu", "nic", "link"]


@st.composite
def problems(draw):
    capacity = {name: draw(st.floats(0.1, 100)) for name in NAMES}
    demands = []
    for _ in range(draw(st.integers(1, 7))):
        needs = draw(st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 10), max_size=3))
        bound = draw(st.one_of(st.just(math.inf), st.floats(0.01, 100)))
        if not needs and math.isinf(bound):
            bound = 1.0
        demands.append(Demand(needs, bound, draw(st.floats(0.1, 10))))
    return demands, capacity


def used(demands, rates, name):
    return sum(d.needs.get(name, 0.0) * rate for d, rate in zip(demands, rates, strict=True))


@given(problems())
def test_no_resource_is_overcommitted_and_no_bound_is_broken(problem):
    demands, capacity = problem
    rates = max_min_rates(demands, capacity)
    for name in NAMES:
        assert used(demands, rates, name) <= capacity[name] * (1 + 1e-6)
    for demand, rate in zip(demands, rates, strict=True):
        assert 0 < rate <= demand.bound * (1 + 1e-9)


@given(problems())
def test_everyone_is_held_back_by_a_bound_or_by_a_full_resource_on_which_no_one_is_better_off(problem):
    # The bottleneck characterisation of weighted max-min fairness.
    demands, capacity = problem
    rates = max_min_rates(demands, capacity)
    levels = [rate / d.weight for d, rate in zip(demands, rates, strict=True)]
    for demand, rate, level in zip(demands, rates, levels, strict=True):
        if rate >= demand.bound * (1 - 1e-6):
            continue
        assert any(
            used(demands, rates, name) >= capacity[name] * (1 - 1e-6)
            and all(
                other <= level * (1 + 1e-6)
                for d, other in zip(demands, levels, strict=True)
                if name in d.needs
            )
            for name in demand.needs
        )


@given(problems(), st.floats(0.1, 10))
def test_rates_do_not_depend_on_the_scale_of_the_weights(problem, factor):
    demands, capacity = problem
    scaled = [Demand(d.needs, d.bound, d.weight * factor) for d in demands]
    assert max_min_rates(scaled, capacity) == pytest.approx(max_min_rates(demands, capacity), rel=1e-6)


def test_two_threads_on_one_core_get_half_each():
    assert max_min_rates([Demand({"cpu": 1.0}, 1.0)] * 2, {"cpu": 1.0}) == [0.5, 0.5]


def test_what_a_capped_flow_leaves_goes_to_the_other():
    flows = [Demand({"nic": 1.0}, bound=20.0), Demand({"nic": 1.0})]
    assert max_min_rates(flows, {"nic": 100.0}) == [20.0, 80.0]


def test_a_weight_of_three_gets_three_quarters():
    flows = [Demand({"nic": 1.0}, weight=3.0), Demand({"nic": 1.0})]
    assert max_min_rates(flows, {"nic": 100.0}) == [75.0, 25.0]


def test_a_transfer_slowed_by_its_core_leaves_the_nic_to_others():
    # The first can send 10 a second because of its core; the second takes the other 90 of the NIC.
    demands = [Demand({"cpu": 0.1, "nic": 1.0}), Demand({"nic": 1.0})]
    assert max_min_rates(demands, {"cpu": 1.0, "nic": 100.0}) == pytest.approx([10.0, 90.0])


def test_what_needs_nothing_goes_as_fast_as_its_bound():
    assert max_min_rates([Demand({}, 7.0), Demand({}, math.inf)], {}) == [7.0, math.inf]
