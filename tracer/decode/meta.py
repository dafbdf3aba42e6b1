"""What a trace says about its run: hosts, ranks, tensors, settings, and what is missing."""

from __future__ import annotations

from typing import Any

from .. import raw
from ..raw import RawProcess
from ..trace import HostInfo, TraceMeta
from .kvstore import kv_tensors
from .names import Names
from .processes import Decoded


def meta_of(decoded: list[Decoded], command: list[str]) -> TraceMeta:
    """Everything but the clocks, from the processes that left logs; `decoded` must not be empty."""
    first = decoded[0].process
    size = max(one.process.size for one in decoded)
    present = {one.process.rank for one in decoded if one.process.rank is not None}
    meta = TraceMeta(
        source="recorded", command=command, ranks=size, batch_per_rank=decoded[0].names.batch_size
    )
    meta.missing_ranks = [rank for rank in range(size) if rank not in present] if present else []
    hosts: dict[str, HostInfo] = {}
    for one in decoded:
        process = one.process
        host = hosts.setdefault(
            process.host,
            HostInfo(
                process.host,
                int(process.identity.get("cores", 0)) or None,
                machine=process.identity.get("machine") or None,
            ),
        )
        if process.rank is not None:
            host.ranks.append(process.rank)
        meta.lost_events += process.lost
    meta.hosts = list(hosts.values())
    seen: dict[str, Any] = {}
    for one in decoded:
        for info in one.names.gradients or kv_tensors(one.names):
            seen.setdefault(info.name, info)
    meta.tensors = list(seen.values())
    meta.settings = _settings(first, decoded[0].names)
    meta.notes = _notes(decoded, meta)
    return meta


def _settings(process: RawProcess, names: Names) -> dict[str, Any]:
    told = names.settings
    settings: dict[str, Any] = {
        "mpi": process.identity.get("mpi"),
        "cycle_time_s": float(told.get("HOROVOD_CYCLE_TIME", 1.0)) / 1e3,
        "fusion_threshold_bytes": int(told.get("HOROVOD_FUSION_THRESHOLD", 128 << 20)),
        "cache_capacity": int(told.get("HOROVOD_CACHE_CAPACITY", 1024)),
        "optimizer_aggregation": names.aggregation,
        "aux": int(told.get("FASTHVD_AUX", 0)),
        "environment": told,
    }
    return settings


def _notes(decoded: list[Decoded], meta: TraceMeta) -> list[str]:
    notes = []
    if meta.missing_ranks:
        missing = ", ".join(str(rank) for rank in meta.missing_ranks)
        notes.append(f"no log of rank {missing}: what other ranks waited for there is not known")
    if meta.lost_events:
        notes.append(f"{meta.lost_events} events were not recorded: the size limit or the disk was full")
    if any(log.stopped == raw.STOPPED_BY_DISK for one in decoded for log in one.process.logs):
        notes.append("the disk was full: the trace ends early")
    pushed = any(len(one.operations.name) for one in decoded)
    if pushed and not any(one.names.parameters for one in decoded):
        notes.append(
            "the script uses no Gluon trainer: steps are counted by the tensors, layers are not known"
        )
    if any(one.operations.done_ns.any() and not len(one.calls.call) for one in decoded):
        notes.append(
            "Horovod reduced without MPI (Gloo): its single collectives are not seen, only its tensors and TCP flows"
        )
    if any(len(op.tensors) > 1 for one in decoded for op in one.names.operations.values()):
        notes.append("tensors of one group share their stamps: Horovod completes a group as one operation")
    return notes
