"""Processor time: who uses the cores, and who waits for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ..trace import Trace

_CORES = """
with owners as (select distinct process, rank, host from events)
select rank, host, subject, median(value) filter (name = 'cpu_user_cores') as user_cores,
    median(value) filter (name = 'cpu_system_cores') as system_cores,
    median(value) filter (name = 'run_queue_wait_cores') as waiting_cores,
    median(value) filter (name = 'host_busy_cores') as host_busy_cores
from samples join owners using (process)
where name like '%_cores' group by rank, host, subject order by rank, subject
"""


def cores(trace: Trace) -> pd.DataFrame:
    """One row a rank and subject (a thread by what it does, ``process``, ``host``); medians over the samples, in cores.

    `waiting_cores` is time in the run queue: a thread that could run but had no core. It shows contention directly.
    """
    return trace.query(_CORES)
