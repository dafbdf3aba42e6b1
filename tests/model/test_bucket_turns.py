"""Each bucket of stock MPI has its habit: it takes turns on its connection or does not."""

import dataclasses

import pytest
from vsketchdlc.model.bucket_turns import turns_by_bucket
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.observations import observe
from vsketchdlc.model.recorded import recorded_scenario
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.timeline import write_simulated_trace
from vsketchdlc.model.workload import GradientTensor, Workload


@pytest.fixture
def two_buckets():
    """Of 20 MB, ready at once, and of 60 MB, ready while the first is reduced: 1 Gbit/s, one core."""
    tensors = (
        GradientTensor("b", "b", 20_000_000, ready_s=0.01),
        GradientTensor("a", "a", 60_000_000, ready_s=0.1, index=1),
    )
    work = Workload("two", tensors, forward_s=0.03, backward_s=0.1, update_s=0.02)
    return Scenario(work, Cluster.star(2, cores=2, nic_bits_per_s=1e9), Calibration.prior())


def with_turns(scenario, *turns):
    return scenario.replaced(workload=dataclasses.replace(scenario.workload, bucket_turns=turns))


def test_a_bucket_that_takes_turns_lasts_longer_than_one_that_does_not(two_buckets):
    plain = simulate_step(two_buckets).buckets
    odd = simulate_step(with_turns(two_buckets, 1.3, 0.9)).buckets
    longer = [b.allreduce_end_s - b.allreduce_start_s for b in odd]
    usual = [b.allreduce_end_s - b.allreduce_start_s for b in plain]
    assert longer[0] == pytest.approx(1.3 * usual[0], rel=0.05)
    assert longer[1] == pytest.approx(0.9 * usual[1], rel=0.05)


def test_a_bucket_beyond_the_recorded_ones_takes_the_average(two_buckets):
    plain = simulate_step(two_buckets)
    odd = simulate_step(with_turns(two_buckets, 1.0))
    assert odd.step_s == pytest.approx(plain.step_s)


def test_the_habits_of_a_recorded_run_are_found_and_replayed(two_buckets, tmp_path):
    ran = with_turns(two_buckets, 1.25, 0.9)
    trace = write_simulated_trace(ran, tmp_path / "trace", steps=8, seed=1)
    seen, fitted = observe(trace), calibrate(trace)
    found = turns_by_bucket(seen, ran.sites, fitted.parameters)
    assert found[0] / found[1] == pytest.approx(1.25 / 0.9, rel=0.05)
    again = simulate_step(recorded_scenario(trace, fitted, seen)).buckets
    for bucket, was in zip(again, simulate_step(ran).buckets, strict=True):
        lasts_s = bucket.allreduce_end_s - bucket.allreduce_start_s
        assert lasts_s == pytest.approx(was.allreduce_end_s - was.allreduce_start_s, rel=0.05)
