"""The spinning compute of a live replay: so many threads, so many CPU seconds each."""

import time
from pathlib import Path

import pytest
from vsketchdlc.replay.busy_threads import BusyThreads
from vsketchdlc.replay.live import busy_threads
from vsketchdlc.tracer.trace import Trace

DATA = Path(__file__).parents[1] / "data" / "replay"


@pytest.mark.parametrize("count", [1, 3])
def test_every_thread_burns_its_own_time(count):
    work = BusyThreads(count)
    before = time.process_time()
    work(0.05)
    burnt = time.process_time() - before
    assert 0.05 * count <= burnt < 0.05 * count + 0.1
    work(0.0)


def test_the_number_of_threads_is_the_recorded_one():
    trace = Trace.open(DATA / "alexnet-two-hosts")
    assert busy_threads(trace) == 1  # OMP_NUM_THREADS=1 is among its settings
    trace.meta.settings["environment"]["OMP_NUM_THREADS"] = "6"
    assert busy_threads(trace) == 6
    trace.meta.settings["environment"].clear()
    assert busy_threads(trace) == 1  # it has no samples of its cores
