"""Requests to MXNet's parameter servers: how long, and how much of it in the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ..trace import Trace

_REQUESTS = """
with trips as (
    select flow, bucket, tensor, kind, any_value(layer) as layer, max(bytes) as bytes, max(t_end_ns - t_start_ns) as trip_ns
    from events where kind in ('kv_push', 'kv_pull') and step >= 1 group by flow, bucket, tensor, kind
), queues as (
    select flow, bucket, tensor, max(t_end_ns - t_start_ns) as queue_ns from events where kind = 'kv_queue'
    group by flow, bucket, tensor
)
select tensor, kind, any_value(layer) as layer, count(*) as requests, median(bytes)::bigint as bytes,
    median(trip_ns) / 1e9 as trip_s, median(queue_ns) / 1e9 as queue_s, median(trip_ns - queue_ns) / 1e9 as transfer_s
from trips left join queues using (flow, bucket, tensor)
group by tensor, kind order by trip_s desc, tensor, kind
"""


def kvstore(trace: Trace) -> pd.DataFrame:
    """One row a key and kind (kv_push, kv_pull), the slowest first; medians over workers, servers and steps, in s.

    `trip_s`: from the first byte of the request to the last byte of the answer, at the worker. `queue_s`: from the
    last byte of the request to the first byte of the answer, at the server; with ``dist_sync`` it waits there for the
    other workers. `transfer_s` is the difference: no common clock is needed. The first step is left out.
    """
    table = trace.query(_REQUESTS)
    named = {info.name: info.parameter for info in trace.meta.tensors}
    table.insert(1, "parameter", table["tensor"].map(named))
    return table
