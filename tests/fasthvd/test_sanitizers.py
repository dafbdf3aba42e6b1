"""Lanes and library built with the compiler's checkers: a bad access or undefined operation fails the test."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from vsketchdlc.fasthvd import lanes as lanes_module
from vsketchdlc.fasthvd.lanes import OPERATIONS, TYPES, Lanes, LanesFailed

ADDR_NO_RANDOMIZE = 0x0040000
NATIVE = Path(__file__).parents[2] / "fasthvd" / "native"
FLAGS = ["-std=gnu11", "-O1", "-g", "-fPIC", "-pthread", "-fvisibility=hidden", "-fno-sanitize-recover=all"]


def build(target: Path, folders: tuple[str, ...], *more: str) -> Path:
    sources = [str(path) for folder in folders for path in sorted((NATIVE / folder).glob("*.c"))]
    subprocess.run(["cc", *FLAGS, *more, *sources, "-ldl", "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module", params=["address,undefined"])
def checked(request: pytest.FixtureRequest, reports: Path) -> tuple[Path, Path]:
    """The library with the undefined-behaviour checker, the lane program with `param`'s."""
    folder = reports.parent
    options = folder / "options.c"
    # A lane has no environment and no stderr, so the checkers get their options in the program itself.
    text = f'{{ return "log_path={reports}/lane:detect_leaks=0"; }}\n'
    names = ("__asan_default_options", "__ubsan_default_options", "__tsan_default_options")
    options.write_text("".join(f"const char *{name}(void) {text}" for name in names))
    kind = request.param.replace(",", "-")
    library = build(folder / f"libfasthvd-{kind}.so", ("common", "rank"), "-shared", "-fsanitize=undefined")
    lane = build(folder / f"lane-{kind}", ("common", "lane"), f"-fsanitize={request.param}", str(options))
    return library, lane


@pytest.mark.parametrize("what", ["threads", "communicators"])
def test_threads_under_the_thread_checker(tmp_path, what):
    """Lanes of their own, and communicators that compete for lane groups: as programs that are checked as a whole,
    without Python, and with a stand-in for MPI, as neither is built for the checker."""
    here, links = Path(__file__).parent, []
    lane = build(tmp_path / "lane", ("common", "lane"))
    if what == "communicators":
        mpi = tmp_path / "libmpi.so.40"
        named = (str(here / "stand_in_mpi.c"), f"-Wl,-soname,{mpi.name}", "-fvisibility=default")
        links = [str(build(mpi, (), "-shared", "-fsanitize=thread", *named)), f"-Wl,-rpath,{tmp_path}"]
    driver = str(here / f"{what}_driver.c")
    program = build(tmp_path / "driver", ("common", "rank"), "-fsanitize=thread", driver, *links)
    # The checker of older compilers wants its memory where it expects it.
    done = subprocess.run(
        ["setarch", "-R", str(program)],
        env={**os.environ, "FASTHVD_LANE": str(lane), "FASTHVD_AUX": "2", "FASTHVD_THRESHOLD_BYTES": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == f"{what} ok\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(1, 1), (2, 1, 1)], ids=str)
def test_every_type_and_a_death_under_the_checkers(start_group, checked, reports, monkeypatch, hosts):
    library, lane = checked
    # The thread checker of older compilers wants its memory where it expects it; lanes inherit this from the ranks.
    ctypes.CDLL(None).personality(ctypes.c_ulong(ADDR_NO_RANDOMIZE))
    monkeypatch.setattr(lanes_module, "LIBRARY", library)
    monkeypatch.setenv("FASTHVD_LANE", str(lane))
    size = sum(hosts)

    def body(group: Lanes, rank: int) -> int:
        for count in (0, 1, 33, 5000, 200_003):
            for dtype in TYPES:
                for op in OPERATIONS:
                    array = np.ones(count, dtype)
                    group.allreduce(array, op)
                    assert (array == (size if op == "sum" else 1)).all(), (dtype, op, count)
        if rank == 0:
            os.kill(group.lane_pids()[0], signal.SIGKILL)
        with pytest.raises(LanesFailed, match="lane 0"):
            group.allreduce(np.ones(9))
        group.allreduce(np.ones(9))
        return group.count

    try:
        assert start_group(body, hosts=hosts, aux=2).results() == [1] * size
    finally:
        ctypes.CDLL(None).personality(ctypes.c_ulong(0))
    assert not list(reports.iterdir()), next(reports.iterdir()).read_text()
