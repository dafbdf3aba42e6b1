"""Was the trial alone on its cores? Signs of other programs in a trace and in a probe.

1. Compute of equal work takes equally long: the middle 80 % of the steps' forward and backward times lie close together.
2. The samples of the cores: a machine's busy cores are those of the job's own processes, and no thread waits for a core
   longer than other threads of the job hold it.
3. Short allreduces of a probe, one after the other, take about equally long.

Whatever is seen widens the model's error: a job that gets a share s of its cores in the trial may get all of them later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..tracer.trace import Trace
from .observations import Observations
from .probe import LaneProbe

_COMPUTE_SPREAD = 0.20
_PROBE_SPREAD = 0.75
_SHORT_BYTES = 1 << 20
_FOREIGN_SHARE = 0.15
_IDLE_SHARE = 0.15
_WAITING_CORES = 0.2
_PART_OF_IT = 0.35
"""How much of the cores' loss shows in a step, relative: communication does not need them all the time."""


@dataclass(frozen=True)
class Disturbance:
    """A sentence with its evidence, and by what standard deviation (relative) it widens a step time."""

    sentence: str
    sigma: float


def disturbance(trace: Trace, seen: Observations, probe: LaneProbe | None = None) -> Disturbance | None:
    """What disturbed the trial, the strongest sign first; None where it looks quiet."""
    signs = [
        sign
        for sign in (_foreign_load(trace), _uneven_compute(seen), _uneven_probe(probe))
        if sign is not None
    ]
    if not signs:
        return None
    evidence = "; ".join(sign.sentence for sign in signs)
    return Disturbance(
        f"the trial looks disturbed: {evidence}; repeat it on a quiet machine",
        max(sign.sigma for sign in signs),
    )


def _spread(values: pd.Series) -> float:
    low, middle, high = values.quantile([0.1, 0.5, 0.9])
    return float((high - low) / middle) if middle > 0 else 0.0


def _uneven_compute(seen: Observations) -> Disturbance | None:
    compute = seen.steps["forward_s"] + seen.steps["backward_s"]
    spread = _spread(compute)
    if len(compute) < 4 or spread <= _COMPUTE_SPREAD:
        return None
    return Disturbance(
        f"compute took {compute.min():.3g} to {compute.max():.3g} s in {len(compute)} steps of equal work",
        spread / 3,
    )


def _uneven_probe(probe: LaneProbe | None) -> Disturbance | None:
    if probe is None:
        return None
    short = [
        row.seconds for row in probe.rows if row.aux and row.bytes <= _SHORT_BYTES and len(row.seconds) > 2
    ]
    if not short:
        return None
    spread = float(np.median([(max(one) - min(one)) / float(np.median(one)) for one in short]))
    if spread <= _PROBE_SPREAD:
        return None
    return Disturbance(
        f"short allreduces of the probe varied by {spread:.0%} from one to the next", min(0.15, spread / 10)
    )


def _foreign_load(trace: Trace) -> Disturbance | None:
    """Cores of a machine that were busy, but not with this job, while a thread of it waited for one."""
    rates = _core_rates(trace)
    worst: Disturbance | None = None
    for _, machine in rates.groupby("machine"):
        whole = machine[machine["subject"] == "host"]
        own = machine[machine["subject"] == "process"]
        threads = machine[~machine["subject"].isin(["host", "process"])]
        busy, idle = whole["busy"].max(), whole["idle"].min()
        if not busy + idle > 0:
            continue
        foreign = busy - float(own["used"].sum())
        # Threads of one rank keep each other waiting too, at most as long as the others hold the core.
        waiting = threads["waiting"].max() - (own["used"].max() - threads["used"].max())
        share = foreign / (busy + idle)
        if share < _FOREIGN_SHARE or idle > _IDLE_SHARE * (busy + idle) or waiting < _WAITING_CORES:
            continue
        found = Disturbance(
            f"other programs used {foreign:.2g} of {busy + idle:.2g} cores, and a thread of the job waited for one "
            f"{waiting:.0%} of the time",
            _PART_OF_IT * math.log(1 / (1 - min(share, 0.9))),
        )
        worst = found if worst is None or found.sigma > worst.sigma else worst
    return worst


def _core_rates(trace: Trace) -> pd.DataFrame:
    """Medians of the core samples: machine, process, subject, busy, idle, used, waiting."""
    names = {
        "cpu_user_cores",
        "cpu_system_cores",
        "run_queue_wait_cores",
        "host_busy_cores",
        "host_idle_cores",
    }
    columns = ", ".join(f"median(value) filter (name = '{name}') as {name}" for name in sorted(names))
    rates = trace.query(
        f"""with owners as (select distinct process, host from events where rank is not null)
        select host, process, subject, {columns} from samples join owners using (process)
        where name like '%_cores' group by host, process, subject"""
    )
    # Hosts of one machine (containers, a lab) see the same counters; after the stroke stands which cores are theirs.
    machines = {host.name: (host.machine or host.name).split("/")[0] for host in trace.meta.hosts}
    used = rates["cpu_user_cores"].fillna(0.0) + rates["cpu_system_cores"].fillna(0.0)
    return pd.DataFrame(
        {
            "machine": rates["host"].map(machines).fillna(rates["host"]),
            "subject": rates["subject"],
            "busy": rates["host_busy_cores"],
            "idle": rates["host_idle_cores"],
            "used": used.astype(float),
            "waiting": rates["run_queue_wait_cores"].fillna(0.0).astype(float),
        }
    )
