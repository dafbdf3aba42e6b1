"""Lanes beside a training: they cost nothing while idle, keep off the rank's core, and are nobody's children."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from vsketchdlc.fasthvd.lanes import Lanes

EXAMPLE = Path(__file__).parents[2] / "examples" / "lanes_without_mpi.py"


def work(lanes: Lanes, rank: int) -> bool:
    array = np.full(100_000, rank + 1, "float32")
    lanes.allreduce(array)
    return bool((array == 3).all())


def cost(pid: int) -> tuple[int, int]:
    """Clock ticks (user and system) and voluntary context switches of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    switches = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return int(fields[11]) + int(fields[12]), switches


def test_idle_lanes_sleep(start_group):
    def body(lanes: Lanes, rank: int) -> list[tuple[int, int]]:
        assert work(lanes, rank)
        time.sleep(0.2)  # the other host's lanes may still be ending the job
        before = [cost(pid) for pid in lanes.lane_pids()]
        time.sleep(1.0)
        after = [cost(pid) for pid in lanes.lane_pids()]
        assert work(lanes, rank)  # nobody leaves before all have looked
        return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after, strict=True)]

    for used in start_group(body, aux=4).results():
        assert len(used) == 4
        assert all(ticks == 0 and switches <= 2 for ticks, switches in used), used


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is all cores")
@pytest.mark.parametrize("pin", [False, True])
def test_lanes_leave_the_core_of_their_rank_unless_pinned(start_group, monkeypatch, pin):
    every = os.sched_getaffinity(0)
    one = {min(every)}
    if pin:
        monkeypatch.setenv("FASTHVD_PIN", "1")

    def body(lanes: Lanes, rank: int) -> list[set[int]]:
        found = [os.sched_getaffinity(pid) for pid in lanes.lane_pids()]
        assert os.sched_getaffinity(0) == one
        assert work(lanes, rank)
        return found

    os.sched_setaffinity(0, one)
    try:
        group = start_group(body)
    finally:
        os.sched_setaffinity(0, every)
    assert all(found == [one if pin else every] * 2 for found in group.results())


def test_a_rank_that_waits_for_its_children_never_meets_a_lane(start_group):
    def body(lanes: Lanes, rank: int) -> list[str]:
        said = []
        try:
            os.wait()
        except ChildProcessError:
            said.append("no children")
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert work(lanes, rank)
        said.append("own child" if os.wait() == (child, 7 << 8) else "another")
        said.append(subprocess.run(["echo", "hello"], capture_output=True, text=True, check=True).stdout)
        said.append(f"children of the rank: {Path(f'/proc/self/task/{os.getpid()}/children').read_text()}")
        assert work(lanes, rank)
        return said

    wanted = ["no children", "own child", "hello\n", "children of the rank: "]
    assert start_group(body).results() == [wanted, wanted]


def test_data_loaders_that_fork_and_ranks_that_exec(start_group):
    """A forked worker has the rank's memory, but no lane hears of it or waits for it."""

    def body(lanes: Lanes, rank: int) -> bool:
        good = True
        for number in range(3):
            read, write = os.pipe()
            worker = os.fork()
            if worker == 0:
                os.write(write, bytes(range(100)))
                if number == 2:
                    os.execv("/bin/true", ["true"])
                os._exit(0)
            good &= work(lanes, rank)
            good &= os.read(read, 1000) == bytes(range(100)) and os.waitpid(worker, 0)[1] == 0
            os.close(read)
            os.close(write)
        return good and lanes.count == 2

    assert start_group(body).results() == [True, True]


def test_a_full_dev_shm_is_no_hindrance(lab_rights):
    """Containers have a small one: the lanes' memory is not there."""
    words = "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full && exec"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{words} {sys.executable} {EXAMPLE}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == EXAMPLE.with_suffix(".out").read_text().partition("\n")[2], done.stderr
