"""Groups of real processes with real lanes on this machine: hosts are told apart by their FASTHVD_HOST_ID."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from vsketchdlc.fasthvd.lanes import FileRendezvous, Lanes

Body = Callable[[Lanes, int], Any]
_FORK = multiprocessing.get_context("fork")
LIMIT_S = 10.0


class Group:
    """Ranks that are running; `results()` waits for them."""

    def __init__(
        self, folder: Path, ranks_of_hosts: Sequence[int], aux: int, timeout_s: float, body: Body
    ) -> None:
        folder.mkdir()
        self._pipes, self.processes, self.lane_pids = [], [], []
        size = sum(ranks_of_hosts)
        hosts = [host for host, ranks in enumerate(ranks_of_hosts) for _ in range(ranks)]
        for rank in range(size):
            mine, theirs = _FORK.Pipe()
            arguments = (theirs, folder, rank, size, f"host{hosts[rank]}", aux, timeout_s, body)
            process = _FORK.Process(target=_rank_main, args=arguments)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self.processes.append(process)
        self.lane_pids = [self._hear(rank) for rank in range(size)]

    def _hear(self, rank: int) -> Any:
        if not self._pipes[rank].poll(LIMIT_S):
            raise TimeoutError(f"rank {rank} says nothing")
        try:
            return self._pipes[rank].recv()
        except EOFError:
            return "gone"

    def results(self) -> list[Any]:
        """What each rank's body returned, "Type: message" of its exception, or "gone" when it was killed."""
        return [self._hear(rank) for rank in range(len(self._pipes))]

    def end(self) -> None:
        """Nothing of the group may be left."""
        deadline = time.monotonic() + 10
        while any(process.is_alive() for process in self.processes) and time.monotonic() < deadline:
            time.sleep(0.005)  # not join(): it waits for forked grandchildren too
        for process in self.processes:
            process.kill()
        pids = [pid for pids in self.lane_pids if isinstance(pids, list) for pid in pids]
        deadline = time.monotonic() + 5
        while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, f"lanes are left behind: {left}"


def _rank_main(
    pipe: Any, folder: Path, rank: int, size: int, host: str, aux: int, timeout_s: float, body: Body
) -> None:
    try:
        meeting = FileRendezvous(folder, rank, size, LIMIT_S)
        with Lanes(rank, size, meeting, aux=aux, timeout_s=timeout_s, host_id=host) as lanes:
            pipe.send(lanes.lane_pids())
            pipe.send(body(lanes, rank))
    except Exception as error:
        if not isinstance(error, (AssertionError, RuntimeError, OSError)):
            traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {error}")
    os._exit(0)


def is_running(pid: int) -> bool:
    """Whether the process is there and not a zombie that only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class MpiJobs:
    """Jobs of real MPI on this machine, over the loopback interface, with or without `vsketchdlc` in front."""

    vsketchdlc = (sys.executable, "-m", "vsketchdlc")
    mpirun = (
        "mpirun", "--bind-to", "none", "--oversubscribe",
        "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
    )  # fmt: skip

    @staticmethod
    def environment(**more: str) -> dict[str, str]:
        """For commands below: calm on few cores, allowed as root."""
        calm = {
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMP_NUM_THREADS": "1",
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, **calm, "PATH": path, **more}

    def run(self, *words: str | Path, timeout: float = 120, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command `words`, with `more` in its environment."""
        return subprocess.run(
            words, env=self.environment(**more), capture_output=True, text=True, timeout=timeout, check=False
        )

    def lanes(
        self,
        *rank: str | Path,
        ranks: int = 2,
        flags: Sequence[str] = ("--aux", "2", "--threshold", "1"),
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        """`vsketchdlc run FLAGS -- mpirun -np RANKS python RANK...`; each rank plays a host of its own by default."""
        words = [
            *self.vsketchdlc,
            "run",
            *flags,
            "--",
            *self.mpirun,
            "-np",
            str(ranks),
            sys.executable,
            *rank,
        ]
        return self.run(*words, **{"TEST_RANKS_PER_HOST": "1", **more})


@pytest.fixture
def mpi_jobs() -> MpiJobs:
    """Runs jobs of real MPI."""
    return MpiJobs()


@pytest.fixture
def start_group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """`start_group(body, hosts=[1, 1], aux=2, timeout_s=60.0)`: one process a rank, each runs `body(lanes, rank)`."""
    groups: list[Group] = []

    def start(body: Body, *, hosts: Sequence[int] = (1, 1), aux: int = 2, timeout_s: float = 60.0) -> Group:
        groups.append(Group(tmp_path / f"group{len(groups)}", hosts, aux, timeout_s, body))
        return groups[-1]

    yield start
    for group in groups:
        group.end()
