"""Files in the shape of each foreign format, made here; and the real ones, where a developer has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REAL = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def real() -> Path:
    if not REAL.is_dir():
        pytest.skip(f"the real foreign files are not here ({REAL}); they are not part of the project")
    return REAL


def horovod_events(
    tensors: int = 3, steps: int = 2, ranks: int = 2, epoch: bool = True
) -> list[dict[str, Any]]:
    """A timeline of allreduces, all tensors of a step fused, and one broadcast before."""
    zero = 0 if epoch else 1_410_000_000_000
    head = {"start_time_since_epoch_in_micros": 1_600_000_000_000_000} if epoch else {"name": "x"}
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "args": head}]
    for pid in range(1, tensors + 2):
        name = f"horovod_allreduce.{pid - 1}" if pid <= tensors else "horovod_broadcast.w"
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        events.append({"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}})
    events += _response([tensors + 1], "BROADCAST", "MPI_BCAST", zero + 100, ranks)
    for step in range(steps):
        at = zero + 10_000 + 5_000 * step
        events.append({"ph": "i", "name": "CYCLE_START", "ts": at, "s": "g"})
        events += _response(list(range(1, tensors + 1)), "ALLREDUCE", "MPI_ALLREDUCE", at, ranks)
    return events


def _response(pids: list[int], op: str, activity: str, at: int, ranks: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for pid in pids:
        events.append({"ph": "B", "name": f"NEGOTIATE_{op}", "ts": at + pid, "pid": pid})
        for rank in range(ranks):
            mark = {"ph": "X", "name": str(rank), "ts": at + pid + 10 * rank, "pid": pid, "dur": 0}
            events.append(mark)
        events.append({"ph": "E", "ts": at + 100 + pid, "pid": pid})
    inside = (
        ["MEMCPY_IN_FUSION_BUFFER", activity, "MEMCPY_OUT_FUSION_BUFFER"] if len(pids) > 1 else [activity]
    )
    for pid in pids:
        events.append({"ph": "B", "name": op, "ts": at + 200, "pid": pid})
    for number, name in enumerate(inside):
        start = at + 300 + 1000 * number
        events += [
            {"ph": "B", "name": name, "ts": start + place, "pid": pid} for place, pid in enumerate(pids)
        ]
        events += [{"ph": "E", "ts": start + 900 + place, "pid": pid} for place, pid in enumerate(pids)]
    for place, pid in enumerate(pids):
        args = {"dtype": "float32", "shape": f"[{pid}, 256]"}
        events.append({"ph": "E", "ts": at + 3500 + place, "pid": pid, "args": args})
    return events


def as_horovod_writes(events: list[dict[str, Any]], closed: bool = True) -> bytes:
    """Newer versions keep the file closed after every event, older ones never close it."""
    lines = ",\n".join(json.dumps(event) for event in events)
    return f"[\n{lines}\n]\n".encode() if closed else f"[\n{lines},\n".encode()


def mxnet_document(steps: int = 2) -> dict[str, Any]:
    """A profile whose operators stand twice and whose numbers are hashes."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "args": {"name": "cpu/0"}, "pid": 0, "name": "process_name"},
        {"ph": "M", "args": {"name": "operator"}, "pid": 3060606181218273969, "name": "process_name"},
    ]
    order = [
        "_image_to_tensor",
        "Convolution",
        "mean",
        "_backward_mean",
        "_backward_Convolution",
        "sgd_mom_update",
    ]
    for step in range(steps):
        for place, name in enumerate(order):
            at = 1_559_670_569_000_000 + 10_000 * step + 1_000 * place
            both = {"name": name, "cat": "operator", "tid": 7423166167323039302}
            apart = {**both, "pid": 3060606181218273969, "id": 7423166167323039302}
            events += [
                {**both, "ph": "B", "ts": at, "pid": 0},
                {**both, "ph": "E", "ts": at + 900, "pid": 0},
                {**apart, "ph": "b", "ts": at + 1},
                {**apart, "ph": "e", "ts": at + 899},
            ]
    call = {"name": "MXNDArrayWaitAll", "cat": "MXNET_C_API", "pid": 849786139768988538, "id": 5, "tid": 5}
    events += [
        {**call, "ph": "b", "ts": 1_559_670_569_000_500},
        {**call, "ph": "e", "ts": 1_559_670_569_000_700},
        {"name": "Memory: cpu/0", "cat": "Device Storage", "ph": "C", "ts": 1_559_670_569_000_600, "args": {"bytes": 64}, "pid": 1},
    ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def kineto_document(
    rank: int | None = 0, world: int = 2, kernels: bool = True, at: float = 1000.0
) -> dict[str, Any]:
    """One ProfilerStep with a DDP allreduce, launched on the CPU and run on stream 20."""

    def event(name: str, category: str, ts: float, dur: float, tid: int = 7, **args: Any) -> dict[str, Any]:
        return {
            "ph": "X", "cat": category, "name": name, "pid": 4000 + (rank or 0), "tid": tid,
            "ts": at + ts, "dur": dur, "args": args,
        }  # fmt: skip

    events = [
        {"ph": "M", "name": "thread_name", "pid": 4000 + (rank or 0), "tid": 7, "args": {"name": "python main"}},
        event("ProfilerStep#17", "user_annotation", 0, 1000),
        event("DistributedDataParallel.forward", "user_annotation", 10, 200),
        event("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", 250, 50),
        event("autograd::engine::evaluate_function: ConvBackward0", "cpu_op", 320, 80.5),
        event(
            "record_param_comms", "cpu_op", 330, 60,
            **{"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", "Group size": world},
        ),
        event("nccl:all_reduce", "user_annotation", 335, 50),
        event("cudaLaunchKernel", "cuda_runtime", 340, 5, correlation=99),
        event("Optimizer.step#SGD.step", "user_annotation", 600, 100),
    ]  # fmt: skip
    if kernels:
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        kernel = event(name, "kernel", 360.25, 200.125, tid=20, correlation=99, device=rank or 0, stream=20)
        events.append({**kernel, "pid": 0})
    document: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0}]}
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    document["baseTimeNanoseconds"] = 1_700_000_000_000_000_000
    document["traceEvents"] = events
    document["traceName"] = "x"
    return document


def chakra_document() -> dict[str, Any]:
    return {
        "workload_graph": [
            {"Id": 1, "Name": "aten::mm", "NodeType": 4, "ctrlDeps": [], "data_deps": [], "runtime": 30, "is_cpu_op": True},
            {"Id": 2, "Name": "gemm", "NodeType": 4, "ctrlDeps": [1], "data_deps": [], "runtime": 50, "is_cpu_op": False},
            {"Id": 3, "Name": "ncclKernel_AllReduce", "NodeType": 7, "ctrlDeps": [1], "data_deps": [2], "runtime": 20},
        ],
        "ngpus": 8,
    }  # fmt: skip


class Shapes:
    """The builders, as one fixture."""

    horovod = staticmethod(horovod_events)
    as_horovod_writes = staticmethod(as_horovod_writes)
    mxnet = staticmethod(mxnet_document)
    kineto = staticmethod(kineto_document)
    chakra = staticmethod(chakra_document)


@pytest.fixture(scope="session")
def shapes() -> type[Shapes]:
    return Shapes
