"""A rank of the live tests: `mpi_rank.py WHAT [ARGUMENT]` under mpirun or mpiexec with libfasthvd.so preloaded."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import zlib

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
RANKS_PER_HOST = int(os.environ.get("TEST_RANKS_PER_HOST", "1"))
if RANKS_PER_HOST:  # before MPI is initialised: ranks of one machine play several hosts
    os.environ["FASTHVD_HOST_ID"] = f"host{RANK // RANKS_PER_HOST}"

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

WORLD = MPI.COMM_WORLD
LANES = ctypes.CDLL(None)
TYPES = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64")
OPERATIONS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX, "prod": MPI.PROD}


def use(count: int) -> None:
    assert LANES.fasthvd_use_lanes(count) == 0


def total() -> int:
    return int(LANES.fasthvd_lanes_total())


def random_calls(calls: int) -> None:
    """Random sizes, types, operations, lanes: over the lanes and over MPI, the same but for rounding."""
    choose = np.random.default_rng(7)  # the same on all ranks
    own = np.random.default_rng(100 + RANK)
    worst = 0.0
    for number in range(calls):
        count = int(np.exp(choose.uniform(0, np.log(200_000))))
        dtype, name = TYPES[choose.integers(len(TYPES))], list(OPERATIONS)[choose.integers(4)]
        in_place, lanes = bool(choose.integers(2)), int(choose.integers(1, total() + 1))
        if dtype.startswith("float"):
            data = own.standard_normal(count).astype(dtype)
        else:
            data = own.integers(0, 3 if WORLD.size < 5 else 2, count).astype(dtype)
        results = []
        for lane_count in (0, lanes):
            use(lane_count)
            out = data.copy() if in_place else np.empty_like(data)
            WORLD.Allreduce(MPI.IN_PLACE if in_place else data, out, op=OPERATIONS[name])
            results.append(out)
        tolerance = {"float32": 1e-5, "float64": 1e-13}.get(dtype, 0.0) * WORLD.size
        difference = np.max(np.abs(results[0].astype("f8") - results[1].astype("f8")), initial=0.0)
        assert difference <= tolerance * (1 + np.max(np.abs(results[0].astype("f8")), initial=0.0)), (
            number,
            dtype,
            name,
            count,
        )
        if WORLD.size == 2:
            assert results[0].tobytes() == results[1].tobytes(), (number, dtype, name, count)
        worst = max(worst, float(difference))
        digests = WORLD.allgather(zlib.crc32(results[1].tobytes()))
        assert len(set(digests)) == 1
    if RANK == 0:
        print(f"calls {calls} lanes {total()} worst {worst:.2g}", flush=True)


def beyond_two_gib() -> None:
    """More than 2^31 bytes, in place, int8, checked by formula."""
    count = (1 << 31) - 1  # MPI's count is an int
    data = np.empty(count, "i1")
    step = 1 << 24
    pattern = (np.arange(step, dtype="i4") % 23).astype("i1")
    for at in range(0, count, step):
        data[at : at + step] = pattern[: len(data[at : at + step])] + RANK
    use(total())
    WORLD.Allreduce(MPI.IN_PLACE, data, op=MPI.SUM)
    expected = (pattern * WORLD.size + sum(range(WORLD.size))).astype("i1")
    for at in range(0, count, step):
        assert np.array_equal(data[at : at + step], expected[: len(data[at : at + step])])
    if RANK == 0:
        print(f"bytes {count} ok", flush=True)


def communicators() -> None:
    """World-congruent communicators use the lanes, others are right too; a freed handle is forgotten."""
    for _ in range(70):
        same = WORLD.Dup()
        half = WORLD.Split(RANK % 2, RANK)
        turned = WORLD.Split(0, -RANK)
        for comm in (same, half, turned):
            data = np.full(50_000, RANK + 1, "f8")
            comm.Allreduce(MPI.IN_PLACE, data)
            assert (data == sum(rank + 1 for rank in comm.allgather(RANK))).all()
        for comm in (half, turned, same):
            comm.Free()
    if RANK == 0:
        print("communicators ok", flush=True)


def other_operations() -> None:
    """What lanes cannot do passes to MPI."""
    data = np.full(100_000, 1 << RANK, "i8")
    out = np.empty_like(data)
    WORLD.Allreduce(data, out, op=MPI.BOR)
    assert (out == (1 << WORLD.size) - 1).all()
    pairs = np.ones(50_000, "c16")
    WORLD.Allreduce(MPI.IN_PLACE, pairs)
    assert (pairs == WORLD.size).all()
    mine = MPI.Op.Create(
        lambda a, b, _: np.add(np.frombuffer(a), np.frombuffer(b), out=np.frombuffer(b)), commute=True
    )
    floats = np.ones(50_000)
    WORLD.Allreduce(MPI.IN_PLACE, floats, op=mine)
    assert (floats == WORLD.size).all()
    mine.Free()
    if RANK == 0:
        print("operations ok", flush=True)


def training(kill: str) -> None:
    """A loop of large allreduces; `kill` says who dies in it: "rank", "lane" or "nobody"."""
    for step in range(30):
        if step == 10 and WORLD.size - 1 == RANK:
            if kill == "rank":
                os.kill(os.getpid(), signal.SIGKILL)
            if kill == "lane":
                own = [pid for pid in _lanes() if pid]
                os.kill(own[0], signal.SIGKILL)
        data = np.full(2_000_000, RANK + step, "f4")
        WORLD.Allreduce(MPI.IN_PLACE, data)
        assert (data == sum(range(WORLD.size)) + step * WORLD.size).all()
    if RANK == 0:
        print("training ok", flush=True)


def steps(count: int, megabytes: int) -> None:
    """`count` allreduces of `megabytes` (10^6 bytes) of float32; rank 0 says when each is done."""
    for step in range(count):
        data = np.full(megabytes * 250_000, RANK + step, "f4")
        WORLD.Allreduce(MPI.IN_PLACE, data)
        assert (data == sum(range(WORLD.size)) + step * WORLD.size).all()
        if RANK == 0:
            print(f"step {step}", flush=True)


def stopped() -> None:
    """The last rank is stopped for ever in the middle of an allreduce, after it has arrived."""
    data = np.full(60_000_000, RANK, "f4")
    WORLD.Allreduce(MPI.IN_PLACE, data)
    if WORLD.size - 1 == RANK:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    WORLD.Allreduce(MPI.IN_PLACE, data)


def _large(comm: MPI.Comm, calls: int = 1) -> None:
    for _ in range(calls):
        data = np.full(50_000, comm.rank + 1, "f4")
        comm.Allreduce(MPI.IN_PLACE, data)
        assert (data == comm.size * (comm.size + 1) / 2).all()


def many_communicators(count: int) -> None:
    """More than there are lane groups for: the others stay on MPI; all are right, and freeing one makes room."""
    copies = [WORLD.Dup() for _ in range(count)]
    for comm in copies:
        _large(comm, 4)
    full = len(_boards())
    copies[1].Free()
    freed = len(_boards())
    _large(copies[-1], 28)  # asks again after twice as many calls each time
    print(f"groups {full} {freed} {len(_boards())}", flush=True)


def come_and_go(short: int, long: int) -> None:
    """Communicators that are made, used a little or more, and freed."""
    most = with_lanes = 0
    for number in range(short + long):
        turned = WORLD.Split(0, -RANK)
        _large(turned, 3 if number < short else 6)
        most = max(most, len(_boards()) if number < short else 0)
        with_lanes += len(_boards()) - 1
        turned.Free()
    print(f"most {most} with lanes {with_lanes} left {len(_boards())}", flush=True)


def lost_lane_of_a_group() -> None:
    """A lane of one communicator is killed: that one goes on with fewer, the others with all."""
    _large(WORLD)
    before = set(_lanes())
    turned = WORLD.Split(0, -RANK)
    _large(turned, 5)
    WORLD.Barrier()
    if RANK == 0:
        os.kill(min(set(_lanes()) - before), signal.SIGKILL)
    WORLD.Barrier()
    _large(turned, 3)
    _large(WORLD, 3)
    WORLD.Barrier()
    print(f"lanes {len(before)} {len(_lanes())}", flush=True)


def abort_with_groups() -> None:
    """The job is aborted while two communicators have lanes."""
    _large(WORLD)
    turned = WORLD.Split(0, -RANK)
    _large(turned, 5)
    print("pids", *_lanes(), flush=True)
    WORLD.Barrier()
    time.sleep(0.2)  # what was printed is on its way
    if RANK == 0:
        WORLD.Abort(3)
    _large(turned, 5)


def never_freed() -> None:
    """MPI_Finalize with communicators that have lanes, and from a child that the user forked."""
    comms = [WORLD.Split(0, -RANK), WORLD.Dup()]
    for comm in comms:
        _large(comm, 5)
    child = os.fork()
    if child == 0:
        os._exit(0 if not LANES.fasthvd_lanes_total() else 1)
    assert os.waitpid(child, 0)[1] == 0
    _large(comms[0])
    print("pids", *_lanes(), flush=True)


def process_sets() -> None:
    """Horovod's process sets over the lanes: one rank of each host, and all ranks of one host."""
    import horovod.mxnet as hvd
    import mxnet as mx

    ranks = range(int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    sets = [
        hvd.ProcessSet([rank for rank in ranks if rank % RANKS_PER_HOST == 0]),
        hvd.ProcessSet([rank for rank in ranks if rank // RANKS_PER_HOST == 0]),
    ]
    hvd.init(process_sets=sets)
    for step in range(6):
        for number, chosen in enumerate([hvd.global_process_set, *sets]):
            if not chosen.included():
                continue
            members = list(ranks) if number == 0 else list(chosen.ranks)
            out = hvd.allreduce(
                mx.nd.full((50_000,), hvd.rank() + step), average=False, name=f"a{number}", process_set=chosen
            )
            assert (out.asnumpy() == sum(rank + step for rank in members)).all()
    hvd.allreduce(mx.nd.ones((1,)), name="end").wait_to_read()  # the first to shut down ends it for all
    hvd.shutdown()
    print("process sets ok", flush=True)


def _boards() -> set[str]:
    """The boards of this rank's lane groups."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        return {line.split()[4] for line in maps if "memfd:fasthvd-board" in line}


def _lanes() -> list[int]:
    """Lane processes that hold a socket of this rank: found by the board's memory, which only they and we map."""
    boards = _boards()
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/comm") as comm, open(f"/proc/{entry}/maps") as maps:  # noqa: PTH123
                    if comm.read() == "fasthvd-lane\n" and boards & {
                        line.split()[4] for line in maps if "memfd:fasthvd-board" in line
                    }:
                        found.append(int(entry))
            except OSError:
                continue
    return found


def mismatch() -> None:
    data = np.ones(1_000_000 + RANK, "f4")
    WORLD.Allreduce(MPI.IN_PLACE, data)


def idle() -> None:
    """CPU time that lanes use in a second without work."""
    WORLD.Barrier()
    before = [_cpu_ns(pid) for pid in _lanes()]
    time.sleep(1.0)
    used = sum(_cpu_ns(pid) for pid in _lanes()) - sum(before)
    WORLD.Barrier()
    if RANK == 0:
        print(f"idle {used} ns", flush=True)


def _cpu_ns(pid: int) -> int:
    with open(f"/proc/{pid}/schedstat") as file:  # noqa: PTH123
        return int(file.read().split()[0])


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    arguments = [int(word) if word.isdigit() else word for word in rest]
    globals()[what](*arguments)
