"""Rates of TCP flows over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ..trace import Trace

_RATES = """
with calls as (
    select flow, t_end_ns, bytes from events
    where kind = ? and flow in (select flow from events where kind = ? group by flow order by sum(bytes) desc limit ?)
), span as (select min(t_end_ns) as begin_ns, greatest(max(t_end_ns) - min(t_end_ns), 1) as length_ns from calls)
select flow, least(((t_end_ns - begin_ns) * ?) // length_ns, ? - 1)::int as bin, any_value(length_ns) / 1e9 / ? as bin_s,
    sum(bytes)::double as bytes
from calls, span group by flow, bin order by flow, bin
"""


def flow_rates(trace: Trace, flows: int = 8, bins: int = 400) -> pd.DataFrame:
    """Payload rate of the `flows` largest flows in `bins` equal stretches of the trace.

    Columns flow, time_s (start of the stretch, from the first byte), bits_per_s. Counted where bytes arrive; where
    no receiver was recorded, where they are sent.
    """
    for kind in ("socket_recv", "socket_send"):
        table = trace.query(_RATES, [kind, kind, flows, bins, bins, bins])
        if len(table):
            break
    table["time_s"] = table["bin"] * table["bin_s"]
    table["bits_per_s"] = 8 * table["bytes"] / table["bin_s"]
    return table[["flow", "time_s", "bits_per_s"]]
