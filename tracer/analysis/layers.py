"""Layers and tensors: when each gradient is ready, what it waits for, how long it travels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from .steps import COLLECTIVES

if TYPE_CHECKING:
    from ..trace import Trace

_TENSORS = f"""
with anchors as (
    select rank, step, min(t_start_ns) as backward_ns from events
    where kind = 'backward' and step >= 0 group by rank, step
), first_step as (
    select case when max(step) > min(step) then greatest(1, min(step)) else min(step) end as step from anchors
), stamps as (
    select rank, step, tensor, any_value(layer) as layer, any_value(bytes) as bytes, max(bucket) as bucket,
        max(t_end_ns) filter (kind = 'ready') as ready_ns,
        max(t_end_ns) filter (kind = 'enqueue') as enqueued_ns,
        max(t_end_ns) filter (kind = 'negotiate') as agreed_ns,
        max(t_end_ns) filter (kind = 'done') as done_ns
    from events
    where tensor is not null and step >= (select step from first_step)
      and kind in ('ready', 'enqueue', 'negotiate', 'done')
    group by rank, step, tensor
), calls as (
    select rank, step, bucket, sum(t_end_ns - t_start_ns) as call_ns, min(t_start_ns) as call_start_ns from events
    where kind in {COLLECTIVES} and step >= 0 group by rank, step, bucket
)
select tensor, any_value(layer) as layer, any_value(s.bytes) as bytes, count(*) as times,
    median(ready_ns - backward_ns) / 1e9 as ready_s,
    median(agreed_ns - enqueued_ns) / 1e9 as negotiate_s,
    median(call_start_ns - agreed_ns) / 1e9 as queue_s,
    median(call_ns) / 1e9 as transfer_s,
    median(done_ns - ready_ns) / 1e9 as total_s,
    median(done_ns - backward_ns) / 1e9 as done_s
from stamps s join anchors using (rank, step) left join calls using (rank, step, bucket)
group by tensor order by ready_s, tensor
"""


def tensors(trace: Trace) -> pd.DataFrame:
    """One row a gradient, in the order of becoming ready; medians over ranks and steps (without the first), in s.

    `ready_s` and `done_s` count from the start of backward. `negotiate_s`: in Horovod's queue until all ranks
    agreed; `queue_s`: from there until its collective starts (buckets before it, copying in); `transfer_s`: its
    bucket's collective; `total_s`: from ready to done.
    """
    table = trace.query(_TENSORS)
    named = {info.name: info.parameter for info in trace.meta.tensors}
    table.insert(1, "parameter", table["tensor"].map(named))
    return table


def layers(trace: Trace) -> pd.DataFrame:
    """One row a layer, in the order of becoming ready; columns as `tensors`.

    `bytes` is the sum over the layer's tensors; of the times the latest of its tensors counts.
    """
    table = trace.tensors()
    table["layer"] = table["layer"].fillna(table["tensor"])
    latest = dict.fromkeys(("ready_s", "negotiate_s", "queue_s", "transfer_s", "total_s", "done_s"), "max")
    grouped = table.groupby("layer", as_index=False).agg({"tensor": "count", "bytes": "sum", **latest})
    return grouped.rename(columns={"tensor": "tensors"}).sort_values(["ready_s", "layer"], ignore_index=True)
