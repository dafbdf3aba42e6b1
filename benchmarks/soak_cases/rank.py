"""A rank of the soak: random allreduces on communicators of all kinds, what differed and what grew."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
OPERATIONS = ("SUM", "MIN", "MAX", "PROD")
LARGEST_ELEMENTS = 300_000
CALLS_IN_A_ROW = 20
CALLS_OF_A_THREAD = 6
WARM_UP = 0.3  # of the calls: until then memory may grow
HUGE_COUNT = (1 << 31) + 12_345
Row = dict[str, Any]


class OwnMpi:
    """MPI's own allreduce: by its second name (PMPI_), which nothing stands in front of."""

    def __init__(self, mpi: Any) -> None:
        import ctypes

        self.mpi = mpi
        self.wrapped = ctypes.CDLL(None)  # with libfasthvd.so in front
        own = ctypes.CDLL("libmpi.so.12" if "MPICH" in mpi.get_vendor()[0] else "libmpi.so.40")
        self._call = own.PMPI_Allreduce
        self._call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, *3 * [ctypes.c_void_p]]
        self.in_place = ctypes.c_void_p(-1 if "MPICH" in mpi.get_vendor()[0] else 1)

    def handles(self, dtype: str, op: str, comm: Any) -> tuple[int, int, int]:
        """Handles of type, operation and communicator."""
        type_of = self.mpi._typedict[np.dtype(dtype).char]
        return tuple(map(self.mpi._handleof, (type_of, getattr(self.mpi, op), comm)))

    def allreduce(self, data: npt.NDArray[Any], op: str, comm: Any) -> npt.NDArray[Any]:
        """The same as the lanes should have found."""
        out = np.empty_like(data)
        status = self._call(
            data.ctypes.data, out.ctypes.data, data.size, *self.handles(data.dtype.name, op, comm)
        )
        assert status == 0, f"PMPI_Allreduce returned {status}"
        return out


class Member:
    """One communicator of a rank and what is drawn for it: the same on all its ranks."""

    def __init__(self, name: str, comm: Any, color: int, own: OwnMpi, seed: int) -> None:
        self.name, self.comm, self.own = name, comm, own
        self.choose = np.random.default_rng([seed, zlib.crc32(name.encode()), color])
        self.data = np.random.default_rng([seed, zlib.crc32(name.encode()), color, comm.rank])
        self.wrong: list[str] = []
        self.calls = 0

    def call(self) -> None:
        """One allreduce over the lanes and once more over MPI."""
        count = int(np.exp(self.choose.uniform(0, np.log(LARGEST_ELEMENTS))))
        dtype, op = TYPES[self.choose.integers(len(TYPES))], OPERATIONS[self.choose.integers(4)]
        in_place = bool(self.choose.integers(2))
        data = self._draw(count, dtype)
        out = data.copy() if in_place else np.empty_like(data)
        self.comm.Allreduce(self.own.mpi.IN_PLACE if in_place else data, out, op=getattr(self.own.mpi, op))
        expected = self.own.allreduce(data, op, self.comm)
        digests = set(self.comm.allgather(zlib.crc32(out.tobytes())))
        self.calls += 1
        if len(digests) > 1 or not _same(out, expected, self.comm.size):
            self.wrong.append(f"{self.name} call {self.calls}: {op} of {count} {dtype}, in place {in_place}")

    def _draw(self, count: int, dtype: str) -> npt.NDArray[Any]:
        """Values whose sums and products stay within every type."""
        if dtype.startswith("float"):
            return self.data.standard_normal(count).astype(dtype)
        return self.data.integers(0, 3 if self.comm.size < 5 else 2, count).astype(dtype)


def _same(got: npt.NDArray[Any], want: npt.NDArray[Any], ranks: int) -> bool:
    tolerance = ranks * {"float32": 1e-5, "float64": 1e-13}.get(got.dtype.name, 0.0)
    if not tolerance or ranks == 2:  # a + b is b + a
        return got.tobytes() == want.tobytes()
    return bool(np.all(np.abs(got - want) <= tolerance * (1 + np.max(np.abs(want), initial=0.0))))


class State:
    """What a process holds: descriptors, memory, lanes."""

    def __init__(self) -> None:
        self.fds = sum(1 for _ in Path("/proc/self/fd").iterdir())
        self.lanes = sorted(_lanes())
        self.rss_mb = _rss_mb("self")
        self.lanes_rss_mb = sum(map(_rss_mb, self.lanes))


def _rss_mb(pid: object) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _lanes() -> Iterable[int]:
    """Lane processes of this rank's groups: they map the same boards."""
    boards = _boards("self")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "comm").read_text() == "fasthvd-lane\n" and boards & _boards(entry.name):
                    yield int(entry.name)
            except OSError:
                continue


def _boards(pid: str) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:fasthvd-board" in line}


class Soak:
    """A rank of the soak."""

    def __init__(self, calls: int, seed: int, hosts: Sequence[int], kills: int = 0) -> None:
        from mpi4py import MPI

        self.own = OwnMpi(MPI)
        self.world = MPI.COMM_WORLD
        self.wanted, self.seed, self.kills = calls, seed, kills
        self.chance = np.random.default_rng()  # when lanes die is the only thing that differs from run to run
        self.together = np.random.default_rng([seed, 1])  # the same on all ranks
        self.host = [host for host, ranks in enumerate(hosts) for _ in range(ranks)][self.world.rank]
        self.place = self.world.rank - sum(hosts[: self.host])
        self.hosts = len(hosts)
        self.members = [
            self._member("world", self.world, 0),
            self._member("copy", self.world.Dup(), 0),
            self._split("halves of the hosts", self.host % 2),
            self._split("one rank a host", self.place),
            self._split("turned round", 0, -self.world.rank),
            self._split("all but the last", int(self.world.rank == self.world.size - 1)),
        ]
        self.finished: list[Member] = []

    def _member(self, name: str, comm: Any, color: int) -> Member:
        return Member(name, comm, color, self.own, self.seed)

    def _split(self, name: str, color: int, key: int = 0) -> Member:
        return self._member(name, self.world.Split(color, key), color)

    @property
    def calls(self) -> int:
        """Allreduces of this rank so far."""
        return sum(member.calls for member in self.members + self.finished)

    def run(self) -> Row:
        """All rounds; what went wrong and what grew."""
        total = int(self.own.wrapped.fasthvd_lanes_total())
        warm_states: dict[int, State] = {}  # the first with so many lanes: communicators may get theirs late
        done = 0  # calls of all rounds, counted the same on all ranks
        while done < self.wanted:
            killer = self._kill_one() if self.kills else None
            self.world.Barrier()
            assert self.own.wrapped.fasthvd_use_lanes(int(self.together.integers(1, total + 1))) == 0
            self.world.Barrier()
            done += self._in_a_row() + self._from_threads() + self._for_a_moment()
            if killer is not None:
                killer.join()
            if done >= WARM_UP * self.wanted:
                state = State()
                warm_states.setdefault(len(state.lanes), state)
        after = State()
        before = warm_states.get(len(after.lanes), after)
        self.world.Barrier()  # a leader that frees its communicators ends lanes that others still count
        for member in self.members[1:]:
            member.comm.Free()
        at_end = State()
        return {
            "calls": self.calls,
            "wrong": [line for member in self.members + self.finished for line in member.wrong],
            "fds": max(after.fds - before.fds, 0),
            "fds_freed": after.fds - at_end.fds,
            "rss_mb": after.rss_mb - before.rss_mb,
            "lanes_rss_mb": after.lanes_rss_mb - before.lanes_rss_mb,
            "lanes": len(after.lanes),
            "lanes_at_end": len(at_end.lanes),
            "lane_pids": sorted({*before.lanes, *after.lanes, *at_end.lanes}),
        }

    def _kill_one(self) -> threading.Timer | None:
        """One rank of three kills one of its lanes, some time within this round."""
        lanes = list(_lanes())
        if not lanes or self.chance.integers(3):
            return None
        self.kills -= 1
        victim = int(self.chance.choice(lanes))
        timer = threading.Timer(float(self.chance.uniform(0, 0.3)), _kill, (victim,))
        timer.start()
        return timer

    def _in_a_row(self) -> int:
        for _ in range(CALLS_IN_A_ROW):
            self.members[self.together.integers(len(self.members))].call()
        return CALLS_IN_A_ROW

    def _from_threads(self) -> int:
        """Every communicator from a thread of its own; every rank starts them in another order."""
        picked = list(self.together.permutation(len(self.members))[:4])
        turn = self.world.rank % len(picked)
        threads = [
            threading.Thread(target=_calls_of_a_thread, args=(self.members[number],))
            for number in picked[turn:] + picked[:turn]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(threads) * CALLS_OF_A_THREAD

    def _for_a_moment(self) -> int:
        """A communicator that is made, used and freed."""
        calls = int(self.together.integers(1, 8))
        turned = bool(self.together.integers(2))
        member = self._split("for a moment", 0, -self.world.rank if turned else 0)
        for _ in range(calls):
            member.call()
        member.comm.Free()
        self.finished.append(member)
        return calls


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _calls_of_a_thread(member: Member) -> None:
    try:
        for _ in range(CALLS_OF_A_THREAD):
            member.call()
    except Exception as error:  # a thread's exception would only be printed
        member.wrong.append(f"{member.name}: {type(error).__name__}: {error}")


def huge(world: Any, own: OwnMpi) -> Row:
    """More than 2^31 elements and bytes in place: MPI 4's call with a long count, which no MPI need know itself."""
    import ctypes

    data = np.empty(HUGE_COUNT, "i1")
    step = 1 << 24
    pattern = (np.arange(step, dtype="i4") % 23).astype("i1")
    for at in range(0, HUGE_COUNT, step):
        data[at : at + step] = pattern[: len(data[at : at + step])] + world.rank
    call = own.wrapped.MPI_Allreduce_c
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *3 * [ctypes.c_void_p]]
    begin = time.monotonic()
    status = call(own.in_place, data.ctypes.data, HUGE_COUNT, *own.handles("int8", "SUM", world))
    seconds = time.monotonic() - begin
    expected = (pattern * world.size + sum(range(world.size))).astype("i1")
    wrong = [] if status == 0 else [f"MPI_Allreduce_c returned {status}"]
    for at in range(0, HUGE_COUNT, step):
        if not np.array_equal(data[at : at + step], expected[: len(data[at : at + step])]):
            wrong.append(f"wrong from element {at} on")
            break
    return {"calls": 1, "wrong": wrong, "seconds": seconds}
