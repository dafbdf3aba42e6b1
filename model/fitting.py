"""Calibrate: find the costs from event durations of one traced run and, if there is one, a lane probe.

1. Small costs (enqueue, control call, copies, callbacks) are medians of their own events.
2. Allreduce costs and the network come from one robust least-squares fit (scipy, soft L1 loss on relative
   errors) of all allreduce durations: traced buckets and probe rows, sizes and lane counts together, and of
   the CPU seconds the probe saw.
3. Each parameter also has a weak prior in the fit. A parameter whose interval the data shrink to less than
   half its prior's is *identified*; the others keep their prior and are listed as such.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize

from ..tracer.trace import Trace
from .calibration import NETWORK_UNITS, Z90, Calibration, Fitted
from .cluster import Cluster
from .collectives import Leg, alone_s, lane_legs, rank_work, stock_legs
from .horovod import DEFAULT_CYCLE_S, control_s
from .observations import Observations, observe
from .openmpi import control_rounds
from .parameters import INFO, Parameters
from .probe import LaneProbe
from .recorded import knobs, recorded_scenario
from .sites import Sites
from .step import simulate_step

Numbers = npt.NDArray[np.float64]
_FITTED = (
    "message_s",
    "stock_s_per_byte",
    "stock_reduce_s_per_byte",
    "stock_duplex",
    "fuse_s_per_byte",
    "spin_weight",
    "lane_s_per_byte",
    "copy_s_per_byte",
    "lane_call_s",
    "lane_start_s",
    "lane_round_s",
)
_NETWORK = ("flow_cap_bits_per_s", "nic_bits_per_s")
_NETWORK_FACTOR = 4.0
_ROW_SIGMA = 0.03
_CPU_SIGMA = 0.10
_STOCK_PROBE_SIGMA = 0.50
_SCHEDULING_S = 0.5e-3
"""What the scheduler may add to any call: it decides how little a short call says."""
_LATENCY_S = 50e-6
"""One-way latency of the wire that is taken for granted; what a message takes beyond it is fitted."""
_SMALL_LANE_CALL = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Row:
    """One measured number: relative sigma, what it is, and how the model computes it from sites and costs."""

    source: str
    measured: float
    sigma: float
    model: Callable[[Sites, Parameters], float]


def calibrate(trace: Trace, probe: LaneProbe | None = None, *, cores: float | None = None) -> Calibration:
    """Fit a `Calibration` from a traced run and an optional lane probe.

    `cores` are those of one host that the job may use, where the trace does not say or is wrong. Raises
    UserError when the trace has no whole steps, no gradients or no allreduce.
    """
    seen = observe(trace)
    hosts = max(1, len(trace.meta.hosts))
    per_host = max(1, (trace.meta.ranks or hosts) // hosts)
    usable = cores if cores is not None else _cores(trace)
    direct = _direct_costs(seen, hosts * per_host, float(knobs(trace)["cycle_s"]))
    rows = _rows(trace, seen, probe, hosts, per_host, direct)
    fit = _fit(rows, hosts, per_host, usable, direct, seen, probe)
    entries = {**direct, **fit.entries}
    for name, info in INFO.items():
        if name not in entries:
            value = float(getattr(Parameters(), name))
            entries[name] = Fitted(value, info.unit, value / info.factor, value * info.factor, False, "prior")
    calibration = Calibration(
        entries=entries,
        fitted_names=fit.names,
        covariance=fit.covariance.tolist(),
        hosts=hosts,
        ranks_per_host=per_host,
        cores=usable,
        latency_s=_LATENCY_S,
        model_error=fit.model_error,
        residuals=fit.residuals,
        notes=_notes(entries, probe),
    )
    return _checked_on_itself(trace, seen, calibration)


def _checked_on_itself(trace: Trace, seen: Observations, calibration: Calibration) -> Calibration:
    """Widen the model's error by what it misses of the very run it was made from."""
    run = simulate_step(recorded_scenario(trace, calibration, seen))
    miss = math.log(run.step_s / seen.step_s)
    residuals = {**calibration.residuals, "step": [miss]}
    return dataclasses.replace(
        calibration, model_error=math.hypot(calibration.model_error, miss), residuals=residuals
    )


def _cores(trace: Trace) -> float:
    """Cores of the poorest host; hosts that are containers of one machine share its cores."""
    hosts = trace.meta.hosts
    sharing = {
        host.machine: sum(other.machine == host.machine for other in hosts) for host in hosts if host.machine
    }
    counts = [host.cores / sharing.get(host.machine or "", 1) for host in hosts if host.cores]
    return float(min(counts)) if counts else 8.0


# -- small costs, each from its own events --------------------------------------------------------------------


def _direct_costs(seen: Observations, ranks: int, cycle_s: float) -> dict[str, Fitted]:
    found: dict[str, Fitted] = {}

    def put(name: str, values: Numbers, source: str) -> None:
        values = values[np.isfinite(values) & (values > 0)]
        if len(values) < 5:
            return
        centre = float(np.median(values))
        spread = 1.4826 * float(np.median(np.abs(np.log(values / centre)))) + 1e-3
        half = Z90 * max(1.2533 * spread / math.sqrt(len(values)), 0.02)
        found[name] = Fitted(
            centre,
            INFO[name].unit,
            centre * math.exp(-half),
            centre * math.exp(half),
            True,
            f"{len(values)} {source}",
        )

    put("enqueue_s", seen.enqueue_s, "enqueue events")
    put("tensor_s", seen.done_spacing_s, "gaps between done events of a bucket")
    if ranks > 1 and len(seen.control_s):
        quick = np.sort(seen.control_s)[: max(5, len(seen.control_s) // 2)]
        put("control_round_s", quick / control_rounds(ranks) - _LATENCY_S, "control calls (the quicker half)")
    period = seen.control_period_s
    if ranks > 1 and len(period) >= 5:
        # Beside a busy core a cycle lasts as long as its thread waits for its turn; else it sleeps its time.
        excess = period - cycle_s
        put("cycle_slack_s", excess[excess < 0.5e-3], "cycles during forward passes")
        put("busy_wait_s", excess[excess >= 0.5e-3] / control_rounds(ranks), "cycles during forward passes")
    return found


# -- allreduce durations, all in one fit ------------------------------------------------------------------------


def _rows(
    trace: Trace,
    seen: Observations,
    probe: LaneProbe | None,
    hosts: int,
    per_host: int,
    direct: dict[str, Fitted],
) -> list[_Row]:
    rows: list[_Row] = []
    lanes = int(knobs(trace)["aux"])
    for group in _alike(seen.fuse, 1 << 20):
        nbytes, busy_s, values = (
            int(group["bytes"].iloc[0]),
            float(group["busy_s"].median()),
            group["seconds"].to_numpy(),
        )
        rows.append(
            _Row("traced fusion copy", float(np.median(values)), _sigma(values), _copied(nbytes, busy_s))
        )
    for group in _alike(seen.buckets, 4096):
        nbytes, busy_s, values = (
            int(group["bytes"].iloc[0]),
            float(group["busy_s"].median()),
            group["seconds"].to_numpy(),
        )
        rows.append(
            _Row(
                "traced allreduce",
                float(np.median(values)),
                _sigma(values),
                _timed(nbytes, lanes, busy_s),
            )
        )
    if probe is None:
        return rows
    for row in probe.rows:
        values = np.asarray(row.seconds, dtype=float)
        source = "probe of stock MPI" if row.aux == 0 else "probe of the lanes"
        # Training has the last word on stock MPI: a connection that has long been in use behaves differently.
        sigma = _STOCK_PROBE_SIGMA if row.aux == 0 and lanes == 0 else _sigma(values)
        rows.append(
            _Row(source, float(np.median(values)), sigma, _probed(row.bytes, row.aux, hosts * per_host))
        )
        if row.aux and row.lane_cpu_s and row.bytes >= _SMALL_LANE_CALL:
            rows.append(_Row("probe's lane CPU", row.lane_cpu_s, _CPU_SIGMA, _lane_cpu(row.bytes, hosts)))
        if row.aux and row.rank_cpu_s and row.bytes >= _SMALL_LANE_CALL:
            rows.append(_Row("probe's rank CPU", row.rank_cpu_s, _CPU_SIGMA * 2, _rank_cpu(row.bytes)))
    return rows


def _sigma(values: Numbers) -> float:
    """Relative sigma of a median: measured scatter over sqrt(n), and never below what the model can resolve."""
    centre = float(np.median(values))
    scatter = 1.4826 * float(np.median(np.abs(values - centre))) / centre
    return math.hypot(_ROW_SIGMA, _SCHEDULING_S / centre, 1.2533 * scatter / math.sqrt(len(values)))


def _timed(nbytes: int, lanes: int, busy_s: float) -> Callable[[Sites, Parameters], float]:
    def model(sites: Sites, costs: Parameters) -> float:
        legs = (
            lane_legs(sites, costs, nbytes, lanes) if lanes else stock_legs(sites, costs, nbytes, nbytes // 4)
        )
        return alone_s(legs, sites, costs, busy_s)

    return model


def _probed(nbytes: int, lanes: int, ranks: int) -> Callable[[Sites, Parameters], float]:
    """What a rank of the probe sees: its gradient queued, half a cycle's wait, agreement, the allreduce."""
    timed = _timed(nbytes, lanes, 0.0)

    def model(sites: Sites, costs: Parameters) -> float:
        agreed_s = control_s(costs, ranks, sites.cluster.worst_latency_s)
        waits_s = (
            costs.enqueue_s + (DEFAULT_CYCLE_S + costs.cycle_slack_s) / 2 + costs.bucket_s + costs.tensor_s
        )
        return waits_s + agreed_s + timed(sites, costs)

    return model


def _alike(calls: pd.DataFrame, least_bytes: int) -> list[pd.DataFrame]:
    """Calls of at least `least_bytes`, in groups of one size that ran mostly beside compute, or mostly not."""
    chosen = calls[calls["bytes"] >= least_bytes]
    return [
        group for _, group in chosen.groupby([chosen["bytes"], chosen["busy_s"] > 0.5 * chosen["seconds"]])
    ]


def _copied(nbytes: int, busy_s: float) -> Callable[[Sites, Parameters], float]:
    def model(sites: Sites, costs: Parameters) -> float:
        leg = Leg(0.0, rank_work("fuse", nbytes * costs.fuse_s_per_byte, sites), spins=False)
        return alone_s([leg], sites, costs, busy_s)

    return model


def _lane_cpu(nbytes: int, hosts: int) -> Callable[[Sites, Parameters], float]:
    return lambda sites, costs: 2 * (hosts - 1) / hosts * nbytes * costs.lane_s_per_byte


def _rank_cpu(nbytes: int) -> Callable[[Sites, Parameters], float]:
    return lambda sites, costs: 2 * nbytes * costs.copy_s_per_byte


@dataclass(frozen=True)
class _Fit:
    entries: dict[str, Fitted]
    names: list[str]
    covariance: Numbers
    residuals: dict[str, list[float]]
    model_error: float


def _fit(
    rows: Sequence[_Row],
    hosts: int,
    per_host: int,
    cores: float,
    direct: dict[str, Fitted],
    seen: Observations,
    probe: LaneProbe | None,
) -> _Fit:
    names = [*_FITTED, *_NETWORK]
    base = Parameters(**{name: entry.value for name, entry in direct.items()})
    start_flow, start_nic = _network_guess(seen, probe, hosts, base.wire_efficiency)
    priors = np.array(
        [math.log(float(getattr(base, name))) for name in _FITTED]
        + [math.log(start_flow), math.log(start_nic)]
    )
    widths = np.array(
        [math.log(INFO[name].factor) / Z90 for name in _FITTED] + [math.log(_NETWORK_FACTOR) / Z90] * 2
    )

    def place(vector: Numbers) -> tuple[Sites, Parameters]:
        values = dict(zip(names, np.exp(vector).tolist(), strict=True))
        cluster = Cluster.star(
            hosts,
            per_host,
            cores=cores,
            nic_bits_per_s=values.pop("nic_bits_per_s"),
            flow_cap_bits_per_s=values.pop("flow_cap_bits_per_s"),
            latency_s=_LATENCY_S,
        )
        costs = base.replaced(**values)
        return Sites.of(cluster, costs.wire_efficiency), costs

    measured = np.array([row.measured for row in rows])
    sigmas = np.array([row.sigma for row in rows])

    def relative(vector: Numbers) -> Numbers:
        sites, costs = place(vector)
        modelled = np.array([row.model(sites, costs) for row in rows], dtype=float)
        return np.asarray(np.log(modelled / measured))

    def loss(vector: Numbers) -> Numbers:
        # soft L1 on the data, plain squares on the prior: scipy's own loss would also soften the prior.
        scaled = relative(vector) / sigmas
        robust = np.sign(scaled) * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))
        return np.concatenate([robust, (vector - priors) / widths])

    # Which limit binds where (cap, NIC, cores) makes kinks: start from several flow caps, keep the best.
    tries = []
    for shift in (0.0, 0.5, -0.5):
        start = priors.copy()
        start[-2] += shift
        tries.append(optimize.least_squares(loss, start, x_scale=widths, max_nfev=60))  # type: ignore[operator]
    best = min(tries, key=lambda found: float(found.cost))
    covariance = np.linalg.inv(best.jac.T @ best.jac)
    errors = relative(best.x)
    residuals: dict[str, list[float]] = {}
    for row, error in zip(rows, errors, strict=True):
        residuals.setdefault(row.source, []).append(round(float(error), 5))
    timed = np.array([e for row, e in zip(rows, errors, strict=True) if row.sigma <= 2 * _ROW_SIGMA])
    model_error = max(0.02, 1.4826 * float(np.median(np.abs(timed)))) if len(timed) else 0.1
    entries = {}
    sources = ", ".join(f"{len(values)} x {source}" for source, values in residuals.items())
    for number, name in enumerate(names):
        value, sigma = math.exp(best.x[number]), math.sqrt(covariance[number, number])
        identified = bool(sigma < 0.5 * widths[number])
        unit = INFO[name].unit if name in INFO else NETWORK_UNITS[name]
        source = sources if identified else "prior: these data do not identify it"
        entries[name] = Fitted(
            value, unit, value * math.exp(-Z90 * sigma), value * math.exp(Z90 * sigma), identified, source
        )
    return _Fit(entries, names, covariance, residuals, model_error)


def _network_guess(
    seen: Observations, probe: LaneProbe | None, hosts: int, efficiency: float
) -> tuple[float, float]:
    """Where the search for the per-flow cap and the NIC rate starts: the best rates anything reached, in bit/s."""
    wire = 2.0 * (hosts - 1) / hosts if hosts > 1 else 1.0

    def rate(nbytes: pd.Series | float, seconds: pd.Series | float) -> float:
        return float(np.max(wire * np.asarray(nbytes) * 8 / np.asarray(seconds))) / efficiency

    flow = rate(seen.buckets["bytes"], seen.buckets["seconds"])
    nic = 4 * flow
    if probe is not None:
        single = [rate(row.bytes, min(row.seconds)) for row in probe.rows if row.aux <= 1]
        every = [rate(row.bytes, min(row.seconds)) for row in probe.rows]
        flow = max([flow, *single])
        nic = max([1.5 * flow, *every])
    return 1.05 * flow, 1.05 * nic


def _notes(entries: dict[str, Fitted], probe: LaneProbe | None) -> list[str]:
    unknown = [name for name, entry in entries.items() if not entry.identified]
    notes = []
    if unknown:
        notes.append("not identified by these data, a prior stands in: " + ", ".join(unknown))
    if probe is None:
        notes.append(
            "no lane probe: what lanes cost and how fast the NIC is are priors; probe to narrow the intervals"
        )
    return notes
