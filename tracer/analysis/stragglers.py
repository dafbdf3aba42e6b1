"""Who is last, and who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from .steps import COLLECTIVES

if TYPE_CHECKING:
    from ..trace import Trace

_STRAGGLERS = f"""
with calls as (
    select rank, step, bucket, t_start_ns, t_end_ns,
        max(t_start_ns) over w as last_ns, min(t_start_ns) over w as first_ns, count(*) over w as ranks
    from events where kind in {COLLECTIVES} and bucket is not null and step >= 0 and rank is not null
    window w as (partition by step, bucket)
), per_call as (
    select rank, step, bucket, t_start_ns - first_ns as late_ns,
        greatest(0, least(last_ns, t_end_ns) - t_start_ns) as waited_ns, t_start_ns = last_ns as is_last
    from calls where ranks > 1 and step >= (select case when max(step) > 0 then 1 else 0 end from calls)
)
select rank, count(*) as calls, avg(is_last::int) as last_share,
    median(late_ns) / 1e9 as late_s, median(waited_ns) / 1e9 as waited_s,
    sum(waited_ns) / 1e9 / count(distinct step) as waited_per_step_s
from per_call group by rank order by rank
"""

_READY = """
select peer, count(*) as times from events
where kind = 'negotiate' and tensor is not null and peer is not null and step >= 1
group by peer order by times desc, peer
"""


def stragglers(trace: Trace) -> pd.DataFrame:
    """One row a rank: how it arrives at the data collectives, first step excluded; times in s.

    `last_share`: share of the collectives that it was last to enter; `late_s`: median time after the first rank;
    `waited_s`: median time inside a collective before the last rank came; `waited_per_step_s`: their sum in a step.
    Empty where the ranks share no clock.
    """
    if not common_clock(trace):
        return trace.query(_STRAGGLERS).iloc[:0]
    return trace.query(_STRAGGLERS)


def last_to_be_ready(trace: Trace) -> pd.DataFrame:
    """One row a rank (`peer`): of how many tensors it was the last to have them in Horovod's queue."""
    return trace.query(_READY)


def common_clock(trace: Trace) -> bool:
    """Whether stamps of all hosts can be compared."""
    return all(host.clock_offset_ns is not None for host in trace.meta.hosts)
