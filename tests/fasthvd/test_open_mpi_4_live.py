"""The lanes below Open MPI 4: the same build, the same launcher words."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
RANK = Path(__file__).with_name("mpi_rank.py")


def test_random_calls_equal_mpi(mpi_jobs):
    home = Path(sys.executable).parents[1] / "openmpi4"
    assert (home / "bin" / "mpirun").exists(), "setup/environment.sh puts Open MPI 4 into .venv/openmpi4"
    mpirun = [str(home / "bin" / "mpirun"), *mpi_jobs.mpirun[1:], "-np", "2"]
    done = mpi_jobs.run(
        *mpi_jobs.vsketchdlc, "run", "--aux", "2", "--threshold", "1", "--", *mpirun,
        sys.executable, RANK, "random_calls", "60",
        TEST_RANKS_PER_HOST="1",
        OPAL_PREFIX=str(home),
        LD_LIBRARY_PATH=":".join([str(home / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]),
    )  # fmt: skip
    assert "calls 60 lanes 2" in done.stdout, done.stderr
