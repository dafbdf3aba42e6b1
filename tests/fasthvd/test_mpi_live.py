"""libfasthvd.so below real MPI programs: Open MPI everywhere, MPICH where it is installed beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from vsketchdlc.fasthvd.settings import LIBRARY

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
RANK = Path(__file__).with_name("mpi_rank.py")
VSKETCHDLC = [sys.executable, "-m", "vsketchdlc"]
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
]


def environment(**more: str) -> dict[str, str]:
    calm = {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, **calm, "PATH": path, **more}


def job(
    ranks: int,
    *words: str,
    per_host: int = 1,
    flags: Sequence[str] = ("--aux", "2", "--threshold", "1"),
    launcher: Sequence[str] = MPIRUN,
) -> subprocess.CompletedProcess[str]:
    command = [
        *VSKETCHDLC,
        "run",
        *flags,
        "--",
        *launcher,
        "-np",
        str(ranks),
        sys.executable,
        str(RANK),
        *words,
    ]
    return subprocess.run(
        command,
        env=environment(TEST_RANKS_PER_HOST=str(per_host)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("ranks", "per_host"), [(2, 1), (3, 1), (4, 2), (3, 3)])
def test_random_calls_equal_mpi(ranks, per_host):
    done = job(ranks, "random_calls", "150", per_host=per_host)
    assert "calls 150 lanes 2" in done.stdout, done.stderr


def test_ranks_that_really_share_a_host_are_one_host():
    done = job(2, "random_calls", "20", per_host=0, flags=("--aux", "2", "--threshold", "1", "--stats"))
    assert "calls 20 lanes 2" in done.stdout, done.stderr
    assert "0.000 MB sent" in done.stderr  # no socket between them


def test_communicators():
    done = job(4, "communicators")
    assert "communicators ok" in done.stdout, done.stderr


def test_what_lanes_cannot_do_passes_to_mpi():
    done = job(3, "other_operations")
    assert "operations ok" in done.stdout, done.stderr


def test_a_killed_lane_does_not_stop_training():
    done = job(2, "training", "lane")
    assert "training ok" in done.stdout, done.stderr
    assert (
        len(
            re.findall(
                "fasthvd: host host1, lane [01]: the lane process died.*going on with 1 of 2 lanes",
                done.stderr,
            )
        )
        == 1
    )


def test_a_killed_rank_ends_the_job():
    done = job(2, "training", "rank")
    assert done.returncode != 0


def test_a_rank_stopped_for_ever_ends_the_job_with_a_sentence():
    done = job(2, "stopped", flags=("--aux", "2", "--timeout", "3s"))
    assert done.returncode != 0
    assert "rank 1 has not voted" in done.stderr


def test_ranks_that_disagree_end_with_an_error():
    done = job(2, "mismatch")
    assert done.returncode != 0
    assert "1000000" in done.stderr and "1000001" in done.stderr


def test_a_rank_without_the_library_is_named_and_the_job_stays_on_mpi():
    plain = [sys.executable, str(RANK), "communicators"]
    preload = [f"LD_PRELOAD={LIBRARY}", "FASTHVD_AUX=2", "FASTHVD_TIMEOUT=1", "FASTHVD_THRESHOLD_BYTES=1"]
    words = [*MPIRUN, "-np", "2", "env", *preload, *plain, ":", "-np", "1", *plain]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert "communicators ok" in done.stdout, done.stderr
    assert "rank 2 did not answer" in done.stderr


def test_other_settings_on_one_rank_are_named():
    plain = [sys.executable, str(RANK), "communicators"]
    own = ["env", "FASTHVD_AUX=3", *plain]
    words = [*VSKETCHDLC, "run", "--aux", "2", "--", *MPIRUN, "-np", "1", *plain, ":", "-np", "1", *own]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert "communicators ok" in done.stdout, done.stderr
    assert "rank 1 has other FASTHVD_* settings" in done.stderr


def test_taken_ports_are_a_sentence():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ("--aux", "1", "--ports", f"{port}:{port}", "--iface", "lo")
        done = job(2, "communicators", flags=flags)
    assert "communicators ok" in done.stdout, done.stderr
    assert f"no free port between {port} and {port}" in done.stderr


def test_idle_lanes_use_no_cpu():
    done = job(2, "idle")
    found = re.search(r"idle (\d+) ns", done.stdout)
    assert found, done.stderr
    assert int(found.group(1)) < 4e6  # 0.1 % of a second for each of four lanes


@pytest.mark.parametrize("ranks", [2])
def test_mpich(ranks):
    home = Path(sys.executable).parents[1] / "mpich"
    assert (home / "bin" / "mpiexec").exists(), "setup/environment.sh puts MPICH into .venv/mpich"
    launcher = [
        str(home / "bin" / "mpiexec"),
        "-genv",
        "LD_LIBRARY_PATH",
        str(home / "lib"),
        "-genv",
        "MPI4PY_MPIABI",
        "mpich",
    ]
    done = job(ranks, "random_calls", "100", launcher=launcher)
    assert "calls 100 lanes 2" in done.stdout, done.stderr
