"""One rank of an allreduce job: real Horovod (or MPI alone) runs the blocks of a plan, one after the other.

`rank.py PLAN.json`: the plan names the blocks and a folder; each rank writes its times there as rank<R>.json.
A block is some back-to-back allreduces of one size at one lane count; all ranks start it together. Before the
first block of each kind one call of it, unrecorded, connects sockets and touches pages.
"""

import ctypes
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any


def own_cpu_s() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def lanes_cpu_s() -> float:
    """CPU seconds of this host's lane processes (the kernel counts them in ns)."""
    total_ns = 0
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().startswith("fasthvd-lane"):
                tasks = comm.parent.glob("task/*/schedstat")
                total_ns += sum(int(task.read_text().split()[0]) for task in tasks)
        except OSError:
            continue  # that process has just ended
    return total_ns * 1e-9


class HorovodCalls:
    """Allreduces as a training script makes them, from an MXNet array."""

    def __init__(self) -> None:
        import horovod.mxnet as hvd
        import mxnet as mx

        hvd.init()
        self._hvd, self._mx = hvd, mx
        self.rank = int(hvd.rank())
        self._arrays: dict[int, Any] = {}

    def start_together(self) -> None:
        self._hvd.allreduce(self._mx.nd.zeros((1,)), name="bench.ready").wait_to_read()

    def prepare(self, size: int) -> None:
        if size not in self._arrays:
            self._arrays[size] = self._mx.nd.zeros((size // 4,), dtype="float32")
            self._arrays[size].wait_to_read()

    def allreduce(self, size: int) -> None:
        array = self._arrays[size]
        self._hvd.allreduce_(array, average=False, name=f"bench.{size}")
        array.wait_to_read()

    def end(self) -> None:
        self._hvd.shutdown()


class MpiCalls:
    """MPI_Allreduce alone, in place, through ctypes; `direct` goes past a preloaded library to MPI itself."""

    def __init__(self) -> None:
        import numpy as np
        from mpi4py import MPI

        self._mpi, self._numpy = MPI, np
        self.rank = MPI.COMM_WORLD.rank
        self._arrays: dict[int, Any] = {}
        handle = lambda what: ctypes.c_void_p(MPI._addressof(what))  # noqa: E731
        word = lambda what: ctypes.c_void_p.from_address(handle(what).value or 0).value  # noqa: E731
        self._handles = [
            ctypes.c_void_p(word(what)) for what in (MPI.FLOAT, MPI.SUM, MPI.COMM_WORLD, MPI.COMM_SELF)
        ]
        self._in_place = ctypes.c_void_p(1)  # Open MPI's MPI_IN_PLACE
        mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
        self._direct = mpi.PMPI_Allreduce
        self._own = ctypes.CDLL(None).MPI_Allreduce  # the preloaded library's, if there is one

    def start_together(self) -> None:
        self._mpi.COMM_WORLD.Barrier()

    def prepare(self, size: int) -> None:
        if size not in self._arrays:
            self._arrays[size] = self._numpy.zeros(size // 4, dtype="float32")

    def allreduce(self, size: int, direct: bool = False, alone: bool = False) -> None:
        call = self._direct if direct else self._own
        memory = ctypes.c_void_p(self._arrays[size].ctypes.data)
        kind, operation, world, own = self._handles
        if (
            call(self._in_place, memory, ctypes.c_int(size // 4), kind, operation, own if alone else world)
            != 0
        ):
            raise SystemExit("MPI_Allreduce failed")

    def end(self) -> None:
        pass


class Lanes:
    """The lanes below this rank; without the library only 0 of them can be asked for."""

    def __init__(self) -> None:
        self._use = getattr(ctypes.CDLL(None), "fasthvd_use_lanes", None)

    def threshold_bytes(self) -> int:
        """From which size on the lanes are used, bytes; 0 without lanes."""
        ask = getattr(ctypes.CDLL(None), "fasthvd_threshold_bytes", None)
        if ask is None:
            return 0
        ask.restype = ctypes.c_int64
        return int(ask())

    def bare(self, on: bool) -> None:
        """Leave the protection out; only a benchmark's build has that switch."""
        if on or hasattr(ctypes.CDLL(None), "fasthvd_bare"):
            ctypes.c_int.in_dll(ctypes.CDLL(None), "fasthvd_bare").value = int(on)

    def use(self, count: int) -> None:
        if (self._use is None and count > 0) or (self._use is not None and self._use(count) != 0):
            raise SystemExit(f"{count} lanes are not there")


def run_block(calls: Any, block: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Time one block on this rank, seconds."""
    calls.prepare(block["bytes"])
    calls.start_together()
    rank_cpu_s, lane_cpu_s, call_s = own_cpu_s(), lanes_cpu_s(), []
    calls.start_together()
    begin = last = time.perf_counter()
    for _ in range(block["calls"]):
        calls.allreduce(block["bytes"], **more)
        now = time.perf_counter()
        call_s.append(now - last)
        last = now
    used = {"rank_cpu_s": own_cpu_s() - rank_cpu_s, "lane_cpu_s": lanes_cpu_s() - lane_cpu_s}
    return {"call_s": call_s, "total_s": last - begin, **used}


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    calls: Any = HorovodCalls() if plan["over"] == "horovod" else MpiCalls()
    lanes, seen, results = Lanes(), set(), []
    for block in plan["blocks"]:
        direct = block["lanes"] is None
        if not direct:
            lanes.use(block["lanes"])
            lanes.bare(block["bare"])
        more = {"direct": True} if direct and plan["over"] == "mpi" else {}
        if block["alone"]:
            more["alone"] = True
        kind = (block["lanes"], block["bytes"], block["bare"], block["alone"])
        if kind not in seen:
            seen.add(kind)
            run_block(calls, {**block, "calls": plan["warm_up"]}, more)
        if plan["pause_file"] and block.get("pause"):
            pause_for(Path(plan["pause_file"]), calls)
        results.append({**run_block(calls, block, more), "threshold_bytes": lanes.threshold_bytes()})
    Path(plan["results"], f"rank{calls.rank}.json").write_text(json.dumps(results))
    lanes.use(0)
    calls.end()


def pause_for(sign: Path, calls: Any) -> None:
    """Tell the owner of the lab that this is the moment to change something, and wait until it has."""
    calls.start_together()
    if calls.rank == 0:
        sign.with_suffix(".here").touch()
        while not sign.exists():
            time.sleep(0.01)
    calls.start_together()


if __name__ == "__main__":
    os.environ.setdefault("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice")
    main()
