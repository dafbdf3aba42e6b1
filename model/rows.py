"""What calibration fits: measured numbers, each with its scatter and the formula by which the model gives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..tracer.schema import Kind
from .collectives import Leg, alone_s, fusion_copy, lane_legs, stock_legs
from .horovod import DEFAULT_CYCLE_S, control_s
from .lanes import crowded_lane_s_per_byte
from .middle import middle_mean
from .observations import Observations
from .parameters import Parameters
from .probe import LaneProbe
from .sites import Sites

Numbers = npt.NDArray[np.float64]
Formula = Callable[[Sites, Parameters], float]

SCHEDULING_S = 1.5e-3
"""What the scheduler may add to a call, or a shaper's burst take from it: it decides how little a short call says."""
_LONE_SCATTER = 0.1
"""Relative error of a value that was measured once."""
_LEAST_SCATTER = 0.001
_CPU_ERROR = 0.01
_LARGE_CALL_BYTES = 4 << 20
LEAST_FUSION_BYTES = 1 << 20
_LEAST_ALLREDUCE_BYTES = 4096
_LEAST_SEEN = 2
"""Calls of a size and company: one alone may have been a hiccup."""
_LEAST_COPIES = 3
_FASTEST_S_PER_BYTE = 0.01e-9
"""100 GB/s: a copy that looks quicker was not seen whole."""


class Group(str, Enum):
    """Rows of one group miss the model by about the same relative amount."""

    TIME = "durations"
    COPY = "durations of copies"
    CPU = "CPU seconds"
    HINT = "hints"


@dataclass(frozen=True)
class Row:
    """One measured number: from which data, its relative standard error, its group, the model's formula."""

    source: str
    measured: float
    error: float
    group: Group
    formula: Formula


def traced_rows(seen: Observations, aux: int) -> list[Row]:
    """Fusion copies of a trace recorded with `aux` lanes, all of a step together, and its allreduces by size and company of compute."""
    reduced = seen.buckets[seen.buckets["bytes"] >= _LEAST_ALLREDUCE_BYTES]
    return [
        *_copies(seen.fuse, Kind.FUSE_IN, "fuse_in_s_per_byte"),
        *_copies(seen.fuse, Kind.FUSE_OUT, "fuse_out_s_per_byte"),
        *_allreduces(reduced[~reduced["lanes"]], 0),
        *_allreduces(reduced[reduced["lanes"]], aux),
    ]


def _alike(calls: pd.DataFrame) -> list[pd.DataFrame]:
    """`calls` of one size each, those beside compute apart from the others."""
    calls = calls[calls["seconds"] > calls["bytes"] * _FASTEST_S_PER_BYTE]
    beside = calls["busy_s"] > 0.5 * calls["seconds"]
    return [group for _, group in calls.groupby([calls["bytes"], beside])]


def _copies(calls: pd.DataFrame, kind: Kind, cost: str) -> list[Row]:
    """One row for all copies of a `kind`: a large copy costs more a byte than a small one, and their sum is what a step takes."""
    groups = _alike(calls[(calls["kind"] == kind.value) & (calls["bytes"] >= LEAST_FUSION_BYTES)])
    if sum(len(group) for group in groups) < _LEAST_COPIES:
        return []
    measured = sum(len(group) * middle_mean(group["seconds"]) for group in groups)
    scatter = math.sqrt(
        sum((len(g) * middle_mean(g["seconds"]) * _error(g["seconds"].to_numpy())) ** 2 for g in groups)
    )
    parts = [(len(g), _copied(cost, int(g["bytes"].iloc[0]), *_company(g))) for g in groups]

    def seconds(sites: Sites, costs: Parameters) -> float:
        return sum(count * copied(sites, costs) for count, copied in parts)

    return [Row("traced fusion copies", measured, scatter / measured, Group.COPY, seconds)]


def _allreduces(calls: pd.DataFrame, lanes: int) -> list[Row]:
    rows = []
    for group in _alike(calls):
        values = group["seconds"].to_numpy(dtype=float)
        if len(values) < _LEAST_SEEN:
            continue
        formula = _timed(lanes, int(group["bytes"].iloc[0]), *_company(group))
        rows.append(Row("traced allreduce", float(np.median(values)), _error(values), Group.TIME, formula))
    return rows


def _company(calls: pd.DataFrame) -> tuple[float, float]:
    """Seconds of the backward pass and of weight updates that typically run beside them."""
    return float(calls["busy_s"].median()), float(calls["update_s"].median())


def probe_rows(probe: LaneProbe, ranks: int, trace_is_stock: bool) -> list[Row]:
    """Times and CPU seconds of a probe; its stock rows only hint where the trace itself shows stock MPI.

    A connection that has long been in use both ways behaves differently from a probe's.
    """
    rows: list[Row] = []
    for row in probe.rows:
        values = np.asarray(row.seconds, dtype=float)
        source = "probe of stock MPI" if row.aux == 0 else "probe of the lanes"
        group = Group.HINT if row.aux == 0 and trace_is_stock else Group.TIME
        formula = _probed(row.bytes, row.aux, ranks)
        rows.append(Row(source, float(np.median(values)), _error(values), group, formula))
    return rows + _cpu_rows(probe)


def _cpu_rows(probe: LaneProbe) -> list[Row]:
    """CPU seconds that the bytes cost: of the largest calls less those of the smallest, so that what a call costs
    whatever its size drops out.
    """
    rows: list[Row] = []
    for aux in sorted({row.aux for row in probe.rows if row.aux}):
        mine = sorted((row for row in probe.rows if row.aux == aux), key=lambda row: row.bytes)
        small, large = mine[0], mine[-1]
        nbytes = large.bytes - small.bytes
        if nbytes < _LARGE_CALL_BYTES:
            continue
        lane_s = _less(large.lane_cpu_s, small.lane_cpu_s)
        rank_s = _less(large.rank_cpu_s, small.rank_cpu_s)
        if lane_s is not None:
            formula = _lane_cpu(nbytes, aux, probe.hosts)
            rows.append(Row("probe's lane CPU", lane_s, _CPU_ERROR, Group.CPU, formula))
        if rank_s is not None:
            rows.append(Row("probe's rank CPU", rank_s, _CPU_ERROR, Group.CPU, _rank_cpu(nbytes)))
    return rows


def _less(large: float | None, small: float | None) -> float | None:
    return large - small if large is not None and small is not None and large > small else None


def pooled(rows: list[Row]) -> list[Row]:
    """The same rows, each with the scatter of its source: a few repetitions say little about their own.

    What the scheduler adds, or a shaper's burst takes, now and then is added to rows of the probe, where it may not have shown.
    """
    by_source: dict[str, list[float]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row.error)
    typical = {source: math.sqrt(float(np.mean(np.square(errors)))) for source, errors in by_source.items()}
    return [replace(row, error=math.hypot(typical[row.source], _unseen(row))) for row in rows]


def _unseen(row: Row) -> float:
    probed = row.source.startswith("probe of")
    return SCHEDULING_S / row.measured if probed else 0.0


def _error(values: Numbers) -> float:
    """Relative standard error of a median."""
    centre = float(np.median(values))
    if len(values) == 1:  # nothing shows how much it scatters
        return _LONE_SCATTER
    away = float(np.median(np.abs(values - centre)))
    scatter = float(np.std(values, ddof=1)) if len(values) < 5 else 1.4826 * away
    return math.hypot(_LEAST_SCATTER, 1.2533 * scatter / math.sqrt(len(values)) / centre)


def _timed(lanes: int, nbytes: int, busy_s: float = 0.0, update_s: float = 0.0) -> Formula:
    def seconds(sites: Sites, costs: Parameters) -> float:
        legs = (
            lane_legs(sites, costs, nbytes, lanes) if lanes else stock_legs(sites, costs, nbytes, nbytes // 4)
        )
        return alone_s(legs, sites, costs, busy_s, update_s)

    return seconds


def _copied(cost: str, nbytes: int, busy_s: float, update_s: float) -> Formula:
    def seconds(sites: Sites, costs: Parameters) -> float:
        parts = fusion_copy("fuse", nbytes * getattr(costs, cost), sites, 2 * nbytes)
        return alone_s([Leg(0.0, part, spins=False) for part in parts], sites, costs, busy_s, update_s)

    return seconds


def _probed(nbytes: int, lanes: int, ranks: int) -> Formula:
    """What a rank of the probe sees: its gradient queued, half a cycle's wait, agreement, the allreduce."""
    timed = _timed(lanes, nbytes)

    def seconds(sites: Sites, costs: Parameters) -> float:
        agreed_s = control_s(costs, ranks, sites.cluster.worst_latency_s)
        return probe_wait_s(costs) + agreed_s + timed(sites, costs)

    return seconds


def probe_wait_s(costs: Parameters) -> float:
    """Horovod's own part of a probe's time: queueing, half a cycle on average, the bucket's and tensor's work."""
    return costs.enqueue_s + (DEFAULT_CYCLE_S + costs.cycle_slack_s) / 2 + costs.bucket_s + costs.tensor_s


def _lane_cpu(nbytes: int, lanes: int, hosts: int) -> Formula:
    def seconds(sites: Sites, costs: Parameters) -> float:
        cores = min(host.cores for host in sites.hosts)
        return 2 * (hosts - 1) / hosts * nbytes * crowded_lane_s_per_byte(costs, lanes, cores)

    return seconds


def _rank_cpu(nbytes: int) -> Formula:
    return lambda _, costs: 2 * nbytes * costs.copy_s_per_byte
