"""Clocks from collectives: the true clock is always within the stated bounds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.decode.clocks import bounds_of_collectives as bounds_between
from vsketchdlc.tracer.decode.clocks import fit_clock
from vsketchdlc.tracer.decode.horovod import Calls


def calls(start, end):
    count = len(start)
    columns = {name: np.zeros(count, dtype=np.int64) for name in Calls.__dataclass_fields__}
    columns["control"] = np.ones(count, dtype=bool)
    columns["call"] = np.full(count, raw.ALLREDUCE)
    columns["number"] = np.arange(count)
    return Calls(**{**columns, "start_ns": start.astype(np.int64), "end_ns": end.astype(np.int64)})


def synchronised(seed, count, seconds, latency_ns, offset_ns, drift):
    """Collectives as two hosts stamp them; the second host's clock is `offset_ns` and `drift` away."""
    rng = np.random.default_rng(seed)
    begin = np.sort(rng.uniform(0, seconds * 1e9, count))
    starts = [begin + rng.exponential(50_000, count) for _ in range(2)]
    released = np.maximum(*starts)
    ends = [released + latency_ns + rng.exponential(20_000, count) for _ in range(2)]

    def there(true):
        return true * (1 + drift) + offset_ns

    return calls(starts[0], ends[0]), calls(there(starts[1]), there(ends[1]))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    offset_s=st.floats(-1000, 1000),
    ppm=st.floats(-80, 80),
    count=st.integers(50, 3000),
)
def test_the_true_clock_is_within_the_bounds(seed, offset_s, ppm, count):
    ours, theirs = synchronised(seed, count, 30.0, 40_000, offset_s * 1e9, ppm * 1e-6)
    clock = fit_clock(bounds_between([ours], [theirs]))
    assert clock is not None
    true_middle = (clock.middle_ns - offset_s * 1e9) / (1 + ppm * 1e-6)
    error_ns = abs(clock.middle_ns + clock.offset_ns - true_middle)
    assert error_ns <= clock.uncertainty_ns + 2


def test_a_thousand_seconds_and_fifty_ppm_within_fifty_microseconds():
    ours, theirs = synchronised(1, 20_000, 60.0, 40_000, 1e12, 50e-6)
    clock = fit_clock(bounds_between([ours], [theirs]))
    assert clock is not None
    there = np.linspace(theirs.start_ns[0], theirs.end_ns[-1], 100).astype(np.int64)
    true = (there - 1e12) / (1 + 50e-6)
    assert np.abs(clock.to_reference(there) - true).max() < 50_000


def test_a_short_run_whose_clocks_visibly_drift_is_aligned_too():
    ours, theirs = synchronised(1, 4_000, 1.5, 10_000, 1e12, 80e-6)
    clock = fit_clock(bounds_between([ours], [theirs]))
    assert clock is not None
    there = np.linspace(theirs.start_ns[0], theirs.end_ns[-1], 100).astype(np.int64)
    true = (there - 1e12) / (1 + 80e-6)
    assert np.abs(clock.to_reference(there) - true).max() < 50_000


def test_no_rank_leaves_before_another_enters_after_alignment():
    ours, theirs = synchronised(2, 5000, 20.0, 30_000, -3e11, -20e-6)
    clock = fit_clock(bounds_between([ours], [theirs]))
    assert clock is not None
    slack = clock.uncertainty_ns
    assert (ours.end_ns >= clock.to_reference(theirs.start_ns) - slack).all()
    assert (clock.to_reference(theirs.end_ns) >= ours.start_ns - slack).all()


def test_no_common_collective_is_no_clock():
    ours, theirs = synchronised(3, 10, 1.0, 40_000, 0, 0)
    theirs.number += 1000
    assert fit_clock(bounds_between([ours], [theirs])) is None


def test_contradicting_collectives_are_no_clock():
    ours, theirs = synchronised(3, 100, 1.0, 40_000, 0, 0)
    theirs.start_ns[50:] += 10**9
    theirs.end_ns[50:] += 10**9
    assert fit_clock(bounds_between([ours], [theirs])) is None
