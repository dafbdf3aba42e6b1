"""TCP flows: how much, how fast, how long a byte is under way, and what the kernel says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ..trace import Trace

#: A flow counts as busy from one call to the next when less than this lies between.
GAP_NS = 5_000_000

_FLOWS = f"""
with calls as (
    select flow, rank, peer, kind, bytes, t_start_ns, t_end_ns,
        lag(t_end_ns) over (partition by flow, kind, process order by t_end_ns) as before_ns
    from events where kind in ('socket_send', 'socket_recv')
), ends as (
    select flow, kind, any_value(rank) as rank, any_value(peer) as peer, sum(bytes)::bigint as bytes, count(*) as calls,
        sum(case when t_start_ns - before_ns < {GAP_NS} then t_end_ns - before_ns else t_end_ns - t_start_ns end) as busy_ns
    from calls group by flow, kind
)
select coalesce(s.flow, r.flow) as flow, coalesce(s.rank, try_cast(replace(r.peer, 'rank ', '') as int)) as sender,
    coalesce(r.rank, try_cast(replace(s.peer, 'rank ', '') as int)) as receiver,
    coalesce(s.bytes, r.bytes) as bytes, coalesce(s.calls, 0) as sends, coalesce(r.calls, 0) as receives,
    coalesce(r.busy_ns, s.busy_ns) / 1e9 as busy_s,
    8e9 * coalesce(r.bytes, s.bytes) / nullif(coalesce(r.busy_ns, s.busy_ns), 0) as bits_per_s
from (select * from ends where kind = 'socket_send') s
full join (select * from ends where kind = 'socket_recv') r on s.flow = r.flow
order by bytes desc, flow
"""

_DELAYS = """
with sends as (
    select flow, "offset" as at, bytes, t_start_ns as sent_ns from events where kind = 'socket_send'
), receives as (
    select flow, "offset" + bytes as through, "offset" as from_byte, t_end_ns as received_ns
    from events where kind = 'socket_recv'
), matched as (
    select s.flow, s.bytes, s.sent_ns, r.received_ns
    from sends s asof join receives r on s.flow = r.flow and s.at < r.through
    where r.from_byte <= s.at
)
select flow, count(*) as messages, min(received_ns - sent_ns) / 1e9 as delay_min_s,
    median(received_ns - sent_ns) / 1e9 as delay_s, quantile_cont(received_ns - sent_ns, 0.95) / 1e9 as delay_p95_s
from matched group by flow
"""

_KERNEL = """
select subject as flow, median(value) filter (name = 'tcp_rtt_s') as rtt_s,
    median(value) filter (name = 'tcp_window_segments') as window_segments,
    max(value) filter (name = 'tcp_retransmits') as retransmits,
    max(value) filter (name = 'tcp_delivery_bits_per_s') as delivery_bits_per_s
from samples where name like 'tcp_%' group by subject
"""


_OWNERS = (
    ("mpi_lib", "Gloo"),  # compiled into Horovod
    ("libgloo", "Gloo"),
    ("libmxnet", "ps-lite"),
    ("libpmix", "PMIx"),
    ("libprrte", "PRRTE"),
    ("libopen-pal", "Open MPI"),
    ("libmpi.so.12", "MPICH"),
    ("libmpi", "Open MPI"),
    ("libfabric", "libfabric"),
    ("libfasthvd", "Fast Horovod"),
    ("fasthvd-lane", "Fast Horovod"),
    ("_socket", "Python"),
    ("python", "Python"),
)


def owner(library: str) -> str:
    """Who the library called `library` (a file's name) belongs to; the name itself where that is not known."""
    return next((name for begin, name in _OWNERS if library.startswith(begin)), library)


def flows(trace: Trace) -> pd.DataFrame:
    """One row a flow (one direction of a connection), the largest first.

    `owner` is the library that made the connection (Open MPI, Gloo, ps-lite ...), null where that is not known.
    `sender` and `receiver` are ranks where both are known; `busy_s` sums the receiver's time from call to call where
    less than 5 ms lies between, `bits_per_s` is its payload rate in that time. `delay_s`: from the start of a send to
    the end of the receive that got its first byte (one way, on aligned clocks). `rtt_s`, `window_segments`,
    `retransmits`, `delivery_bits_per_s`: the kernel's view at the sender.
    """
    table = trace.query(_FLOWS)
    owners = {name: owner(str(library)) for name, library in trace.meta.flows.items()}
    table.insert(1, "owner", table["flow"].map(owners))
    table = table.merge(trace.query(_DELAYS), on="flow", how="left")
    return table.merge(trace.query(_KERNEL), on="flow", how="left")
