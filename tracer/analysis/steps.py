"""Where the time of each step goes, and how much communication the computation does not hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ..trace import Trace

COLLECTIVES = "('allreduce', 'broadcast', 'allgather', 'alltoall', 'reducescatter', 'barrier')"

_BREAKDOWN = f"""
with starts as (
    select rank, step, min(t_start_ns) as begin_ns from events
    where kind = 'forward' and step >= 0 group by rank, step
), whole as (
    select rank, step, begin_ns,
           lead(begin_ns) over (partition by rank order by step) as next_ns,
           lead(step) over (partition by rank order by step) as next_step
    from starts
), sums as (
    select rank, step,
        sum(t_end_ns - t_start_ns) filter (kind = 'forward') as forward_ns,
        sum(t_end_ns - t_start_ns) filter (kind = 'backward') as backward_ns,
        max(t_end_ns) filter (kind = 'backward') as backward_end_ns,
        max(t_end_ns) filter (kind = 'update') as update_end_ns,
        max(t_end_ns) filter (kind in ('done', 'kv_push', 'kv_pull')) as done_ns,
        sum(t_end_ns - t_start_ns) filter (kind in {COLLECTIVES}) as collective_ns,
        sum(t_end_ns - t_start_ns) filter (kind in ('fuse_in', 'fuse_out')) as copy_ns,
        sum(bytes) filter (kind in {COLLECTIVES}) as bytes,
        count(*) filter (kind in {COLLECTIVES}) as buckets
    from events where step >= 0 group by rank, step
), hidden as (
    select e.rank, e.step, sum(greatest(0, least(e.t_end_ns, s.backward_end_ns) - e.t_start_ns)) as hidden_ns
    from events e join sums s on e.rank = s.rank and e.step = s.step
    where e.kind in {COLLECTIVES} group by e.rank, e.step
)
select w.rank, w.step,
    (next_ns - begin_ns) / 1e9 as step_s,
    coalesce(forward_ns, 0) / 1e9 as forward_s,
    coalesce(backward_ns, 0) / 1e9 as backward_s,
    greatest(0, coalesce(done_ns - backward_end_ns, 0)) / 1e9 as exposed_s,
    greatest(0, coalesce(update_end_ns - greatest(backward_end_ns, coalesce(done_ns, 0)), 0)) / 1e9 as update_s,
    coalesce(collective_ns, 0) / 1e9 as collective_s,
    coalesce(hidden_ns, 0) / 1e9 as overlapped_s,
    coalesce(copy_ns, 0) / 1e9 as copy_s,
    coalesce(bytes, 0)::bigint as bytes, coalesce(buckets, 0)::bigint as buckets
from whole w join sums using (rank, step) left join hidden using (rank, step)
where next_step = step + 1 and backward_end_ns is not null
order by rank, step
"""


def step_breakdown(trace: Trace) -> pd.DataFrame:
    """One row a rank and whole step; times in s.

    1. `step_s` runs from the start of the forward pass to the start of the next one.
    2. `forward_s` and `backward_s` are the passes themselves.
    3. `exposed_s` runs from the end of backward until the last gradient of the step is reduced.
    4. `update_s` is what the optimizer needs after that.
    5. `other_s` is the rest: the script, data loading, idle time.

    Beside them: `collective_s` inside the data collectives, of which `overlapped_s` before the end of backward;
    `copy_s` into and out of the fusion buffer; `bytes` and `buckets` of the collectives. Waiting for late ranks
    is part of the collectives (see `stragglers`).
    """
    table = trace.query(_BREAKDOWN)
    parts = table[["forward_s", "backward_s", "exposed_s", "update_s"]].sum(axis=1)
    table.insert(7, "other_s", (table["step_s"] - parts).clip(lower=0.0))
    return table


def exposed_communication(trace: Trace) -> pd.DataFrame:
    """One row a whole step: the exposed communication of its slowest rank against its step time.

    Columns step, step_s, exposed_s, share, overlap: `share` is what is lost to waiting for gradients, `overlap`
    the share of the collectives' time that backward hid. A communication s times faster wins at most
    ``exposed_s * (1 - 1/s)``.
    """
    table = trace.step_breakdown()
    slowest = table.loc[table.groupby("step")["exposed_s"].idxmax()]
    answer = slowest[["step", "step_s", "exposed_s"]].copy()
    answer["share"] = slowest["exposed_s"] / slowest["step_s"]
    answer["overlap"] = (slowest["overlapped_s"] / slowest["collective_s"]).where(slowest["collective_s"] > 0)
    return answer.sort_values("step", ignore_index=True)


def steady(table: pd.DataFrame) -> pd.DataFrame:
    """`table` without step 0 (it negotiates every tensor and allocates every buffer) where others are there."""
    rest = table[table["step"] >= 1]
    return rest if len(rest) else table
