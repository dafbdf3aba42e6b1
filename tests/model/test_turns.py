"""One factor for all buckets' turns: the one with which the recorded step comes out."""

import dataclasses

import pytest
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.observations import observe
from vsketchdlc.model.recorded import recorded_scenario
from vsketchdlc.model.scenario import TURNS_ON_PARTS_OF_A_CORE
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.timeline import write_simulated_trace
from vsketchdlc.model.turns import NAME, with_turns_of_the_step


def test_a_factor_that_misses_the_step_is_put_right_and_its_interval_holds_both(demo, tmp_path):
    trace = write_simulated_trace(demo, tmp_path / "trace", steps=8, seed=1, noise=0.02)
    seen, fitted = observe(trace), calibrate(trace)
    wrong = fitted.moved(NAME, 0.35)
    right = with_turns_of_the_step(trace, seen, wrong)
    assert right.value(NAME) == pytest.approx(fitted.value(NAME), rel=0.08)
    assert simulate_step(recorded_scenario(trace, right, seen)).step_s == pytest.approx(seen.step_s, rel=0.02)
    assert (
        right.entries[NAME].low < fitted.value(NAME) and right.entries[NAME].high > wrong.value(NAME) * 0.99
    )


def test_a_fit_that_gives_the_step_is_left_alone_and_so_is_a_trace_with_lanes(demo, tmp_path):
    stock = write_simulated_trace(demo, tmp_path / "stock", steps=8, seed=1)
    fitted = calibrate(stock)
    assert with_turns_of_the_step(stock, observe(stock), fitted) is fitted
    lanes = write_simulated_trace(demo.replaced(aux=2), tmp_path / "lanes", steps=8, seed=1)
    moved = calibrate(lanes).moved(NAME, 0.3)
    assert with_turns_of_the_step(lanes, observe(lanes), moved) is moved


def test_hosts_with_part_of_a_core_take_turns_more_often_than_whole_ones_showed(demo):
    seldom = dataclasses.replace(demo.calibration, hosts=2, cores=1.0).moved(NAME, -1.0)
    whole = demo.replaced(calibration=seldom, cluster=seldom.cluster())
    half = whole.replaced(cluster=seldom.cluster(hosts=4, cores=0.5))
    assert whole.parameters.stock_duplex == seldom.value(NAME)
    assert half.parameters.stock_duplex == TURNS_ON_PARTS_OF_A_CORE
