import dataclasses
import math

import numpy as np
import pytest
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.variability import largest_of, step_draws
from vsketchdlc.model.workload import StepSpread


def test_intervals_enclose_the_median_and_mean_different_things(demo):
    prediction = predict(demo)
    assert prediction.low_s < prediction.step_s < prediction.high_s
    assert prediction.p5_s < prediction.step_s < prediction.p95_s


def test_unknown_costs_widen_the_median_but_not_the_steps(demo):
    sure, unsure = predict(demo), predict(demo.replaced(calibration=Calibration.prior()))
    assert (unsure.high_s - unsure.low_s) / unsure.step_s > 2 * (sure.high_s - sure.low_s) / sure.step_s
    spread = [(p.p95_s - p.p5_s) / p.step_s for p in (sure, unsure)]
    assert spread[0] == pytest.approx(spread[1], rel=0.2)


def test_whether_stock_takes_turns_is_open_where_cores_are_free_and_were_not(demo):
    seen = dataclasses.replace(demo.calibration, hosts=2, cores=1.0)
    there = demo.replaced(calibration=seen)
    roomy = there.replaced(cluster=Cluster.star(2, cores=8, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9))
    here, there_too = predict(roomy), predict(there)
    assert here.high_s / here.step_s > 1.3 > there_too.high_s / there_too.step_s
    lanes = predict(roomy.replaced(aux=2))
    assert lanes.high_s / lanes.step_s < 1.1


def test_exposed_communication_is_what_nothing_hides(demo):
    run = simulate_step(demo)
    assert predict(demo).exposed_s == pytest.approx(run.last_done_s - max(run.ready_s.values()))
    assert predict(demo.replaced(aux=4)).exposed_s < predict(demo).exposed_s / 2


def test_draws_are_centred_on_the_step_and_repeatable(demo):
    run = simulate_step(demo)
    draws = step_draws(demo, run, seed=5)
    assert float(np.median(draws)) == pytest.approx(run.step_s)
    assert np.array_equal(draws, step_draws(demo, run, seed=5))


def test_a_prediction_is_a_trace_that_reports_can_read(demo, tmp_path):
    prediction = predict(demo.replaced(aux=3))
    trace = prediction.to_trace(tmp_path / "predicted", steps=3)
    assert trace.meta.source == "simulated" and trace.meta.settings["aux"] == 3
    steps = trace.step_times()
    lengths = (steps["t_end_ns"] - steps["t_start_ns"]) * 1e-9
    assert lengths[steps["step"] >= 1].to_numpy() == pytest.approx(prediction.step_s, rel=1e-6)
    counts = trace.query(
        "select kind, count(distinct tensor) n from events where kind in ('ready', 'done') group by 1"
    )
    assert set(counts["n"]) == {len(demo.workload.tensors)}


def test_waiting_for_the_slowest_rank_costs_more_with_more_ranks(demo):
    calm = dataclasses.replace(demo.workload, update_s=0.0, spread=StepSpread(compute=0.0))
    rough = dataclasses.replace(calm, spread=StepSpread(compute=0.10, correlation=0.0))

    def backward(workload, hosts):
        cluster = Cluster.star(hosts, cores=64)
        return simulate_step(demo.replaced(workload=workload, cluster=cluster)).backward_end_s

    assert backward(calm, 2) == pytest.approx(backward(calm, 32), rel=1e-6)
    assert backward(rough, 32) / backward(rough, 2) == pytest.approx(math.exp(0.10 * (2.07 - 0.59)), rel=0.01)


def test_the_largest_of_many_draws():
    draws = np.random.default_rng(1).standard_normal((20_000, 16)).max(axis=1)
    assert largest_of(16) == pytest.approx(float(draws.mean()), abs=0.02)
    assert largest_of(1) == 0.0


def test_an_interval_is_wider_with_other_hosts_or_another_network_than_calibrated_with(demo):
    seen = dataclasses.replace(demo.calibration, hosts=2, cores=1.0)
    at_home = demo.replaced(calibration=seen, cluster=seen.cluster(), aux=2)
    four = at_home.replaced(cluster=seen.cluster(hosts=4))
    faster = at_home.replaced(cluster=seen.cluster(nic_bits_per_s=9e9))
    width = [math.log(p.high_s / p.low_s) for p in map(predict, (at_home, four, faster))]
    assert width[1] > width[0] * 1.1 and width[2] > width[0] * 1.1
