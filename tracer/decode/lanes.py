"""Rows of Fast Horovod's lanes, as the leader of each host recorded them: every lane is a process of its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import raw
from ..schema import Kind
from .calls import step_at
from .processes import Decoded
from .rows import LANE, Tensors, as_table, concatenated, rows

#: enum vsk_phase of vsketch.h
PHASES = (Kind.LANE_LOCAL_SUM, Kind.LANE_REDUCE_SCATTER, Kind.LANE_ALLGATHER)


def lane_tables(one: Decoded, host_number: int) -> list[pa.Table]:
    """A table for each lane whose work the rank `one` recorded."""
    parts = [log for log in one.process.logs if (log.records["kind"] == raw.LANE).any()]
    if not parts:
        return []
    records = np.concatenate([log.records for log in parts])
    ends = np.concatenate([log.end_ns for log in parts])
    chosen = records["kind"] == raw.LANE
    records, ends = records[chosen], ends[chosen]
    lane, phase = records["a"] & 0xFFF, records["a"] >> 12
    tables = []
    for number, process in sorted(set(zip(lane.tolist(), records["c"].tolist(), strict=True))):
        made = []
        for place, kind in enumerate(PHASES):
            mine = np.flatnonzero((lane == number) & (records["c"] == process) & (phase == place))
            starts = records["t"][mine].astype(np.int64)
            size = records["b"][mine].astype(np.int64)
            made.append(rows(kind, LANE, starts, ends[mine], step=step_at(one, starts), bytes_=size))
        tables.append(
            as_table(
                concatenated(made),
                Tensors(),
                [],
                rank=None,
                host=one.host,
                process=host_number << 32 | process,
                lane=number,
            )
        )
    return tables
