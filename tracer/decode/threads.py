"""Threads of one process: what each of them does, and the processor time it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import raw
from ..raw import RawProcess

#: Counters by record kind: names of the two, in cores (seconds of it a second).
COUNTERS = {
    raw.THREAD_CPU: ("cpu_user_cores", "cpu_system_cores"),
    raw.THREAD_RUN: ("on_core_cores", "run_queue_wait_cores"),
    raw.PROCESS_CPU: ("cpu_user_cores", "cpu_system_cores"),
    raw.HOST_CPU: ("host_busy_cores", "host_idle_cores"),
}


@dataclass(frozen=True)
class Sample:
    """One value of one thing at one time (ns on the host's clock)."""

    t_ns: int
    subject: str
    name: str
    value: float


def thread_names(process: RawProcess) -> dict[int, str]:
    """By thread number: ``python``, ``horovod``, ``engine 1``..., or the thread's own name."""
    names: dict[int, str] = {}
    workers = 0
    for log in sorted(process.logs, key=lambda log: log.tid):
        kinds = set(np.unique(log.records["kind"]).tolist())
        marks = set(np.unique(log.records["a"][log.records["kind"] == raw.MARK]).tolist())
        if kinds & {raw.MPI, raw.DONE}:
            names[log.tid] = "horovod"
        elif raw.PUSH in kinds or raw.FORWARD_BEGIN in marks:
            names[log.tid] = "python"
        elif raw.READY in kinds or marks:
            workers += 1
            names[log.tid] = f"engine {workers}"
        else:
            names[log.tid] = f"{log.thread} {log.tid}"
    return names


def cpu_samples(process: RawProcess) -> list[Sample]:
    """Processor time of `process`, its threads and its host, each as cores used since the sample before."""
    names = thread_names(process)
    samples: list[Sample] = []
    for log in process.logs:
        chosen = log.records[np.isin(log.records["kind"], list(COUNTERS))]
        keys = chosen["kind"].astype(np.int64) << 32 | chosen["dur"]
        for key in np.unique(keys).tolist():
            series = chosen[keys == key]
            kind, tid = key >> 32, key & 0xFFFFFFFF
            subject = {raw.PROCESS_CPU: "process", raw.HOST_CPU: "host"}.get(kind) or names.get(
                tid, f"thread {tid}"
            )
            elapsed = np.diff(series["t"].astype(np.int64))
            for name, field in zip(COUNTERS[kind], ("b", "c"), strict=True):
                rates = np.diff(series[field].astype(np.int64)) / np.maximum(elapsed, 1)
                stamps = series["t"][1:].tolist()
                samples += [Sample(t, subject, name, v) for t, v in zip(stamps, rates.tolist(), strict=True)]
    return samples
