"""What single events leave open comes from the recorded step as a whole."""

import dataclasses

import pytest
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.observations import observe
from vsketchdlc.model.recorded import recorded_scenario
from vsketchdlc.model.scenario import TURNS_ON_PARTS_OF_A_CORE
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.timeline import write_simulated_trace
from vsketchdlc.model.whole_step import CAP, LANE_COST, TURNS, matched_to_the_step


def test_a_factor_that_misses_the_step_is_put_right_and_its_interval_holds_both(demo, tmp_path):
    trace = write_simulated_trace(demo, tmp_path / "trace", steps=8, seed=1, noise=0.02)
    seen, fitted = observe(trace), calibrate(trace)
    wrong = fitted.moved(TURNS, 0.35)
    right = matched_to_the_step(trace, seen, wrong)
    assert right.value(TURNS) == pytest.approx(fitted.value(TURNS), rel=0.08)
    assert simulate_step(recorded_scenario(trace, right, seen)).step_s == pytest.approx(seen.step_s, rel=0.02)
    assert (
        right.entries[TURNS].low < fitted.value(TURNS)
        and right.entries[TURNS].high > wrong.value(TURNS) * 0.99
    )


def test_a_fit_that_gives_the_step_is_left_alone_and_so_is_a_trace_with_lanes(demo, tmp_path):
    stock = write_simulated_trace(demo, tmp_path / "stock", steps=8, seed=1)
    fitted = calibrate(stock)
    assert matched_to_the_step(stock, observe(stock), fitted) is fitted
    lanes = write_simulated_trace(demo.replaced(aux=2), tmp_path / "lanes", steps=8, seed=1)
    moved = calibrate(lanes).moved(TURNS, 0.3)
    assert matched_to_the_step(lanes, observe(lanes), moved) is moved


def test_a_flow_gets_at_least_what_an_exchange_got(demo, tmp_path):
    """Without turns the step would still be too long: then it is the cap that is too low."""
    trace = write_simulated_trace(demo, tmp_path / "trace", steps=8, seed=1)
    seen, fitted = observe(trace), calibrate(trace)
    wrong = fitted.moved(CAP, -0.9)
    right = matched_to_the_step(trace, seen, wrong)
    assert right.value(CAP) > 1.3 * wrong.value(CAP)
    assert simulate_step(recorded_scenario(trace, right, seen)).step_s == pytest.approx(seen.step_s, rel=0.02)


def test_lanes_cost_what_the_step_shows_where_their_events_do_not_tell(demo, tmp_path):
    """Four lanes on a core, a fast NIC: the cores are the limit, and no probe has measured the lanes."""
    crowded = demo.replaced(aux=4, cluster=Cluster.star(2, cores=1, nic_bits_per_s=20e9))
    trace = write_simulated_trace(crowded, tmp_path / "lanes", steps=8, seed=1)
    seen, fitted = observe(trace), calibrate(trace)
    assert not fitted.entries[LANE_COST].identified
    wrong = fitted.moved(LANE_COST, 0.3)
    right = matched_to_the_step(trace, seen, wrong)
    assert right.value(LANE_COST) < wrong.value(LANE_COST)
    assert simulate_step(recorded_scenario(trace, right, seen)).step_s == pytest.approx(seen.step_s, rel=0.03)


def test_hosts_with_part_of_a_core_take_turns_more_often_than_whole_ones_showed(demo):
    seldom = dataclasses.replace(demo.calibration, hosts=2, cores=1.0).moved(TURNS, -1.0)
    whole = demo.replaced(calibration=seldom, cluster=seldom.cluster())
    half = whole.replaced(cluster=seldom.cluster(hosts=4, cores=0.5))
    assert whole.parameters.stock_duplex == seldom.value(TURNS)
    assert half.parameters.stock_duplex == TURNS_ON_PARTS_OF_A_CORE
