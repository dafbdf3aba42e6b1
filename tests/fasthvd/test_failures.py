"""What goes wrong while lanes work, and that it ends in a right sum or a sentence, with nothing left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from vsketchdlc.fasthvd.lanes import Lanes, LanesFailed

COUNT = 1_000_000


def sum_of_ranks(lanes: Lanes, rank: int, size: int = 2) -> bool:
    array = np.full(COUNT, rank + 1, "float32")
    lanes.allreduce(array)
    return bool((array == size * (size + 1) / 2).all())


def fails_untouched(lanes: Lanes, rank: int, cause: str, count: int = COUNT) -> int:
    """The allreduce must fail with `cause`, the array be untouched; returns the lanes that are left."""
    array = np.full(count, rank + 1, "float32")
    with pytest.raises(LanesFailed, match=cause):
        lanes.allreduce(array)
    assert (array == rank + 1).all()
    return lanes.count


def test_a_lane_killed_between_two_allreduces(start_group):
    def body(lanes: Lanes, rank: int) -> tuple:
        first = sum_of_ranks(lanes, rank)
        if rank == 1:
            os.kill(lanes.lane_pids()[1], signal.SIGKILL)
        left = fails_untouched(lanes, rank, "host host1, lane 1: the lane process died")
        return first, left, sum_of_ranks(lanes, rank), lanes.count

    assert start_group(body, aux=3).results() == [(True, 2, True, 2)] * 2


def test_the_only_lane_killed(start_group):
    def body(lanes: Lanes, rank: int) -> int:
        if rank == 0:
            os.kill(lanes.lane_pids()[0], signal.SIGKILL)
        left = fails_untouched(lanes, rank, "host host0, lane 0")
        with pytest.raises(LanesFailed):
            lanes.allreduce(np.ones(10, "float32"))
        return left

    assert start_group(body, hosts=(1, 1, 1), aux=1).results() == [0] * 3


def test_lanes_killed_in_the_middle_of_allreduces(start_group):
    """Again and again until none is left: every allreduce is a right sum or fails untouched, on all ranks alike."""

    def body(lanes: Lanes, rank: int) -> list[bool]:
        outcomes = []
        victims = lanes.lane_pids() if rank == 1 else []
        while lanes.count:
            timer = None
            if victims and len(outcomes) % 3 == 2:
                timer = threading.Timer(0.0005 * len(victims), os.kill, (victims.pop(), signal.SIGKILL))
                timer.start()
            array = np.full(5_000_000, rank + 1, "float32")
            try:
                lanes.allreduce(array)
                outcomes.append(bool((array == 6).all()))
            except LanesFailed:
                outcomes.append(bool((array == rank + 1).all()))
            if timer:
                timer.join()
        return outcomes

    results = start_group(body, hosts=(1, 1, 1), aux=4).results()
    assert results[0] == results[1] == results[2]
    assert all(results[0])


def test_a_lane_stopped_for_a_second_only_waits(start_group):
    def body(lanes: Lanes, rank: int) -> tuple:
        if rank == 0:
            pid = lanes.lane_pids()[0]
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(1.0, os.kill, (pid, signal.SIGCONT)).start()
        return sum_of_ranks(lanes, rank), lanes.count

    assert start_group(body, timeout_s=10).results() == [(True, 2)] * 2


@pytest.mark.parametrize("hosts", [(1, 1), (2, 2)], ids=str)
def test_a_lane_stopped_for_ever_is_given_up(start_group, hosts):
    def body(lanes: Lanes, rank: int) -> tuple:
        size = sum(hosts)
        if rank == 0:
            os.kill(lanes.lane_pids()[0], signal.SIGSTOP)
        begin = time.monotonic()
        left = fails_untouched(lanes, rank, "host host[01], lane 0")
        assert time.monotonic() - begin < 4
        return left, sum_of_ranks(lanes, rank, size)

    assert start_group(body, hosts=hosts, timeout_s=4).results() == [(1, True)] * sum(hosts)


def test_a_lane_stopped_in_the_middle_is_given_up(start_group):
    def body(lanes: Lanes, rank: int) -> int:
        sum_of_ranks(lanes, rank)
        if rank == 0:
            threading.Timer(0.005, os.kill, (lanes.lane_pids()[0], signal.SIGSTOP)).start()
        return fails_untouched(lanes, rank, "lane 0", 40_000_000)

    assert start_group(body, timeout_s=2).results() == [1, 1]


def test_a_late_host_is_waited_for(start_group, capfd):
    """Longer than the time limit: only a warning."""

    def body(lanes: Lanes, rank: int) -> bool:
        if rank == 2:
            time.sleep(3)
        return sum_of_ranks(lanes, rank, 3)

    assert start_group(body, hosts=(1, 1, 1), timeout_s=1).results() == [True] * 3
    assert "for a host to arrive" in capfd.readouterr().err


def test_a_late_rank_of_the_own_host_is_waited_for(start_group):
    def body(lanes: Lanes, rank: int) -> bool:
        if rank == 1:
            time.sleep(2.5)
        return sum_of_ranks(lanes, rank, 3)

    assert start_group(body, hosts=(2, 1), timeout_s=1).results() == [True] * 3


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_leaves_nothing(start_group, victim):
    def body(lanes: Lanes, rank: int) -> None:
        if rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        sum_of_ranks(lanes, rank, 4)  # waits for the dead one

    group = start_group(body, hosts=(2, 2), timeout_s=2)
    group.processes[victim].join(10)
    time.sleep(0.3)  # lanes of its host end by themselves; the others' when their ranks go
    for process in group.processes:
        process.kill()
    group.end()


def test_a_forked_child_does_not_keep_lanes_alive(start_group):
    def body(lanes: Lanes, rank: int) -> int:
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        good = sum_of_ranks(lanes, rank)
        return child if good else 0

    group = start_group(body)
    children = group.results()
    try:
        assert all(children)
        for process in group.processes:
            process.kill()
        group.end()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_no_descriptors_left_is_a_sentence(start_group):
    """The leader of host1 has hardly any: agreed on all ranks, nothing left behind."""
    import resource

    def body(lanes: Lanes, rank: int) -> int:
        return lanes.count

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 25, hard))
    try:
        results = start_group(body, aux=40).lane_pids
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all("ulimit -n" in result for result in results), results


def test_memory_does_not_grow(start_group):
    def body(lanes: Lanes, rank: int) -> tuple:
        array = np.ones(2_000_000, "float32")
        out = np.empty_like(array)

        def state() -> tuple:
            pids = [os.getpid(), *lanes.lane_pids()]
            return tuple(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)

        lanes.allreduce(array, "sum", out)
        before = state()
        for _ in range(50):
            lanes.allreduce(array, "sum", out)
        after = state()
        lanes.allreduce(array, "sum", out)  # nobody leaves before all have looked
        return before, after

    for before, after in start_group(body, hosts=(2, 1)).results():
        assert before == after
