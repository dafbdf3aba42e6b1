"""The spinning compute of a live replay: so many threads, so many CPU seconds each."""

import time
from pathlib import Path

import pytest
from vsketchdlc.replay.busy_threads import BusyThreads, Sleep, nothing
from vsketchdlc.replay.live import busy_threads
from vsketchdlc.tracer.trace import Trace

DATA = Path(__file__).parents[1] / "data" / "replay"


@pytest.mark.parametrize("count", [1, 3])
def test_every_thread_burns_its_own_time(count):
    work = BusyThreads(count)
    before = time.process_time()
    work.run([(0.05, nothing)])
    burnt = time.process_time() - before
    assert 0.05 * count <= burnt < 0.05 * count + 0.1
    work.run([(0.0, nothing)])


@pytest.mark.parametrize("compute", [BusyThreads(2), Sleep()])
def test_gradients_are_handed_over_in_their_order_and_between_the_pieces(compute):
    seen = []
    compute.run([(0.01, lambda: seen.append("a")), (0.0, lambda: seen.append("b")), (0.01, nothing)])
    assert seen == ["a", "b"]


def test_many_short_pieces_take_no_longer_than_one():
    work = BusyThreads(1)
    before = time.process_time()
    work.run([(0.0005, nothing)] * 200)
    assert time.process_time() - before < 0.15


@pytest.mark.parametrize("compute", [BusyThreads(2), Sleep()])
def test_what_a_call_raises_reaches_the_caller(compute):
    def fails():
        raise ValueError("no such gradient")

    with pytest.raises(ValueError, match="no such gradient"):
        compute.run([(0.0, fails)])
    compute.run([(0.0, nothing)])


def test_the_number_of_threads_is_the_recorded_one():
    trace = Trace.open(DATA / "alexnet-two-hosts")
    assert busy_threads(trace) == 1  # OMP_NUM_THREADS=1 is among its settings
    trace.meta.settings["environment"]["OMP_NUM_THREADS"] = "6"
    assert busy_threads(trace) == 6
    trace.meta.settings["environment"].clear()
    assert busy_threads(trace) == 1  # it has no samples of its cores
