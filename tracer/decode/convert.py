"""A recording becomes a Trace: decode every process, align the hosts' clocks, write the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from ..raw import RawProcess
from ..schema import SAMPLES
from ..trace import Trace, write_trace
from .alignment import align_hosts
from .calls import call_rows
from .flows import flows_of, libraries, socket_rows, tcp_samples
from .gradients import expand, last_to_enqueue, tensor_rows
from .kvstore import kv_rows
from .lanes import lane_tables
from .meta import meta_of
from .processes import decode_process
from .rows import Tensors, as_table, concatenated
from .tcp import pairs
from .threads import Sample, cpu_samples


def convert(recording: list[RawProcess], target: Path, command: list[str]) -> Trace:
    """Write the processes of `recording` as a Trace to folder `target`, whole or not at all.

    `recording` must not be empty. Raises UserError when `target` cannot be written.
    """
    decoded = [decode_process(process) for process in recording]
    meta = meta_of(decoded, command)
    matched = list(pairs(recording, [one.traffic for one in decoded]))
    clocks = align_hosts(decoded, matched, meta)
    tensors = Tensors()
    for info in meta.tensors:
        tensors.number(info)
    expanded = [expand(one, tensors) for one in decoded]
    last = last_to_enqueue(decoded, expanded, clocks)
    flows = flows_of(decoded, matched)
    meta.flows = libraries(decoded)
    kvstore = kv_rows(decoded, matched, tensors, flows)
    hosts = {host.name: place for place, host in enumerate(meta.hosts)}
    tables, samples = [], []
    for place, (one, members, peers) in enumerate(zip(decoded, expanded, last, strict=True)):
        parts = [
            *tensor_rows(one, members, peers),
            *call_rows(one),
            *one.step_rows,
            *socket_rows(place, one, flows),
            *kvstore[place],
        ]
        number = hosts[one.host] << 32 | one.process.pid
        tables.append(
            as_table(concatenated(parts), tensors, flows.names, rank=one.rank, host=one.host, process=number)
        )
        tables += lane_tables(one, hosts[one.host])
        samples.append(_sample_table([*cpu_samples(one.process), *tcp_samples(one)], number))
    return write_trace(target, meta, pa.concat_tables(tables), pa.concat_tables(samples))


def _sample_table(samples: list[Sample], process: int) -> pa.Table:
    columns = [
        pa.array([sample.t_ns for sample in samples], pa.int64()),
        pa.array(np.full(len(samples), process, dtype=np.int64)),
        pa.array([sample.subject for sample in samples], pa.string()),
        pa.array([sample.name for sample in samples], pa.string()),
        pa.array([sample.value for sample in samples], pa.float64()),
    ]
    return pa.table(columns, schema=SAMPLES)
