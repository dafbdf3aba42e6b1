"""Every communicator between hosts has lanes of its own: many at once, from many threads, lost lanes, and their ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
ROOT = Path(__file__).parents[2]
RANK = Path(__file__).with_name("mpi_rank.py")
MPIRUN = [
    "mpirun",
    "--bind-to",
    "none",
    "--oversubscribe",
    "--mca",
    "btl",
    "tcp,self",
    "--mca",
    "btl_tcp_if_include",
    "lo",
    "-np",
]
ALL_LARGE = ("--aux", "2", "--threshold", "1", "--stats")


def environment(per_host: int = 1) -> dict[str, str]:
    return {
        **os.environ,
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TEST_RANKS_PER_HOST": str(per_host),
    }


def job(ranks: int, *words: str, per_host: int = 1) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "vsketchdlc", "run", *ALL_LARGE, "--"]
    return subprocess.run(
        [*run, *MPIRUN, str(ranks), sys.executable, str(RANK), *words],
        env=environment(per_host),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lanes_are_gone(output: str) -> bool:
    pids = [int(pid) for line in re.findall(r"pids ([\d ]+)", output) for pid in line.split()]
    deadline = time.monotonic() + 2
    while (left := [pid for pid in pids if _is_lane(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(pids) > 0 and not left


def _is_lane(pid: int) -> bool:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(") ")
    except OSError:
        return False
    return name.endswith("(fasthvd-lane") and not rest.startswith("Z")


@pytest.mark.parametrize(
    ("mpi", "layout"), [("openmpi", "2,1,1"), ("mpich", "2,2")], ids=lambda value: str(value)
)
def test_soak(tmp_path, mpi, layout):
    """A small one of benchmarks/soak.py: random calls on all kinds of communicators, in a row and from threads."""
    rows = tmp_path / "rows.json"
    words = ["--calls", "240", "--layout", layout, "--mpi", mpi, "--seed", "5", "--json", str(rows)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "soak.py"), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = {row["variant"]: row["value"] for row in json.loads(rows.read_text())}
    assert done.returncode == 0, (found, done.stderr)
    assert found["differ from MPI"] == found["processes left"] == found["more descriptors"] == 0
    assert found["lanes while it ran"] > found["lanes after Comm_free"] > 0, found
    assert "going on with" not in done.stderr


def test_more_communicators_than_lane_groups():
    done = job(2, "many_communicators", "11")
    assert re.findall(r"groups (\d+) (\d+) (\d+)", done.stdout) == [("8", "7", "8")] * 2, done.stderr
    assert "had lanes for 8 communicators beside the first" in done.stderr
    assert "MB, to MPI: no lane group free" in done.stderr
    assert "MB, to MPI: first calls of a communicator" in done.stderr


def test_communicators_that_come_and_go_start_few_lanes():
    """Those made for a moment none; those used longer, again and again, wait longer and longer for theirs."""
    done = job(2, "come_and_go", "30", "20")
    assert re.findall(r"most (\d+) with lanes (\d+) left (\d+)", done.stdout) == [("1", "2", "1")] * 2, (
        done.stderr
    )


def test_a_lane_lost_by_one_communicator_is_not_lost_by_the_others():
    done = job(2, "lost_lane_of_a_group")
    assert re.findall(r"lanes (\d+) (\d+)", done.stdout) == [("2", "3")] * 2, done.stdout + done.stderr
    assert (
        len(
            re.findall(
                "lane [01]: the lane process died.*going on with 1 of 2 lanes for a communicator of 2",
                done.stderr,
            )
        )
        == 1
    )


def test_abort_leaves_no_lanes():
    done = job(2, "abort_with_groups")
    assert done.returncode != 0
    assert lanes_are_gone(done.stdout), done.stdout + done.stderr


def test_finalize_with_live_groups_and_forked_children():
    done = job(3, "never_freed")
    assert done.returncode == 0, done.stderr
    assert lanes_are_gone(done.stdout), done.stdout


def test_horovods_process_sets():
    done = job(3, "process_sets", per_host=2)
    assert done.stdout.count("process sets ok") == 3, done.stderr
    assert "had lanes for 2 communicators beside the first" in done.stderr
    assert "MB, to MPI: communicator" in done.stderr  # all on one host
