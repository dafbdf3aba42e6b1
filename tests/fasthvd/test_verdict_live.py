"""Within 20 steps a job is told which bytes the lanes carried, which passed and why, and which setting would help."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
CONTROL = Path(__file__).with_name("control_rank.py")
HOROVOD = Path(__file__).with_name("horovod_rank.py")
LARGE = ("--aux", "1", "--threshold", "100KB")


def said(stderr: str) -> dict[str, str]:
    """What rank 0 said, by the last step before it ("" when it was before all)."""
    step, found = "", {}
    for line in stderr.splitlines():
        if line.startswith("step "):
            step = line
        elif line.startswith("fasthvd: "):
            found[step] = line
    return found


def test_gradients_that_never_come_are_told_at_step_20(mpi_jobs):
    done = mpi_jobs.lanes(CONTROL, "30", "0", flags=LARGE)
    lines = said(done.stderr)
    assert list(lines) == ["step 19"], done.stderr
    assert "no gradient has come through MPI_Allreduce yet" in lines["step 19"]
    assert (
        "HOROVOD_HIERARCHICAL_ALLREDUCE=1" in lines["step 19"]
        and "HOROVOD_CPU_OPERATIONS=MPI" in lines["step 19"]
    )


def test_nccl_is_recognised_by_its_library(mpi_jobs, tmp_path):
    library = tmp_path / "libnccl.so.2"
    with Path("/proc/self/maps").open() as maps:
        some = next(line.split()[-1] for line in maps if re.search(r"/libm\.so|/libm-", line))
    shutil.copy(some, library)
    done = mpi_jobs.lanes(CONTROL, "21", "0", library, flags=LARGE)
    assert "NCCL carries them: HOROVOD_HIERARCHICAL_ALLREDUCE=1" in said(done.stderr)["step 19"], done.stderr


def test_gloo_below_an_mpi_controller_is_recognised(mpi_jobs):
    """The launcher's command does not show it: the script itself chooses."""
    done = mpi_jobs.lanes(CONTROL, "21", "0", flags=LARGE, HOROVOD_CPU_OPERATIONS="gloo")
    assert "Gloo carries them" in said(done.stderr)["step 19"], done.stderr
    assert "without HOROVOD_CPU_OPERATIONS=gloo" in done.stderr  # and `run` saw it before the start


def test_buckets_below_the_threshold_are_told(mpi_jobs):
    done = mpi_jobs.lanes(CONTROL, "21", "40000", flags=LARGE)
    line = said(done.stderr)["step 19"]
    assert (
        "the lanes carried 0.0 MB" in line
        and "smaller than 100000 bytes" in line
        and "largest: 40000" in line
    )
    assert "HOROVOD_CYCLE_TIME" in line


def test_all_is_well_is_said_with_stats_only(mpi_jobs):
    done = mpi_jobs.lanes(CONTROL, "21", "400000", flags=LARGE)
    assert "fasthvd" not in done.stderr and "vsketchdlc" not in done.stderr
    done = mpi_jobs.lanes(CONTROL, "21", "400000", flags=(*LARGE, "--stats", "--json", "-"))
    lines = said(done.stderr)
    assert "the lanes carried 7.6 MB in 19 allreduces, 0.0 MB passed" in lines["step 19"], done.stderr
    found = json.loads(done.stdout)
    counters = found["counters"]
    assert (found["ranks_of_jobs"], counters["carried"]) == ([2], {"calls": 21, "bytes": 21 * 400000})
    assert counters["passed"]["control"]["calls"] == 21 * 3 + 20 * 2
    assert [row["host"] for row in counters["lanes"]] == ["host0", "host1"]
    for row in counters["lanes"]:
        assert row["jobs"] == 21 and row["alive"] and row["retransmits"] == 0
        assert 21 * 400000 < row["sent_bytes"] < 1.01 * 21 * 400000
        assert row["rate_bits_per_s"] > 0 and row["busy_s"] > 0


def test_quiet_keeps_advice_back(mpi_jobs):
    done = mpi_jobs.lanes(CONTROL, "21", "0", flags=(*LARGE, "--quiet"), HOROVOD_CPU_OPERATIONS="gloo")
    assert "step 21" in done.stderr and "fasthvd" not in done.stderr and "vsketchdlc" not in done.stderr


def test_a_short_job_is_told_at_its_end(mpi_jobs):
    done = mpi_jobs.lanes(CONTROL, "3", "0", flags=LARGE)
    assert "no gradient has come" in said(done.stderr)["step 3"]


def test_horovodrun_over_mpi_brings_gradients_to_the_lanes(mpi_jobs):
    words = [
        "horovodrun",
        "--mpi",
        "--network-interfaces",
        "lo",
        "-np",
        "2",
        sys.executable,
        HOROVOD,
        "21",
        "100000",
    ]
    done = mpi_jobs.run(*mpi_jobs.vsketchdlc, "run", *LARGE, "--stats", "--", *words, TEST_RANKS_PER_HOST="1")
    assert "steps 21 ok" in done.stdout, done.stderr
    assert re.search(
        r"fasthvd: the lanes carried \d+\.\d MB in \d+ allreduces, 0\.0 MB passed", done.stderr
    ), done.stderr
    assert "host1            lane  0" in done.stderr
