"""Calibrate: find the costs from event durations of one traced run and, if there is one, a lane probe.

1. Small costs (enqueue, control call, callbacks) are medians of their own events.
2. Allreduce costs and the network come from one robust least-squares fit (scipy, soft L1 loss on relative
   errors) of the rows of `model.rows`: traced buckets, fusion copies, probe rows, CPU seconds.
3. What the formulas themselves miss is estimated per group of rows, so that the standardised residuals have
   unit scale (the Birge ratio of metrology, made robust), and the fit is repeated with it.
4. Each parameter also has a weak prior in the fit. One whose interval the data shrink to less than a quarter
   of its prior's, and below 20 % either way, is *identified*; the others are listed as such.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from ..tracer.trace import Trace
from .calibration import NETWORK_UNITS, Z90, Calibration, Fitted
from .cluster import Cluster
from .direct_costs import direct_costs
from .disturbance import disturbance
from .observations import Observations, observe
from .openmpi import control_rounds
from .parameters import INFO, Parameters
from .place import Place, cores_of, hosts_and_ranks
from .probe import LaneProbe
from .recorded import knobs, recorded_scenario
from .rows import LEAST_FUSION_BYTES, Group, Numbers, Row, pooled, probe_rows, traced_rows
from .sites import Sites
from .step import simulate_step
from .whole_step import matched_to_the_step

_FITTED = (
    "message_s",
    "stock_s_per_byte",
    "stock_reduce_s_per_byte",
    "stock_duplex",
    "fuse_in_s_per_byte",
    "fuse_out_s_per_byte",
    "spin_weight",
    "lane_s_per_byte",
    "lane_crowd",
    "copy_s_per_byte",
    "lane_call_s",
    "lane_start_s",
    "lane_round_s",
)
_NETWORK = ("flow_cap_bits_per_s", "nic_bits_per_s")
_NETWORK_FACTOR = 4.0
_IDENTIFIED = 1 / 4
_WIDEST = 0.12
_LONGEST_LATENCY_S = 50e-6
_HINT_ERROR = 0.5
_LEAST_MODEL_ERROR = 0.02
_EXPECTED_MISS = 0.004
_INFERRED_ERROR = 0.05
"""More of it where forward and backward had to be inferred."""


def calibrate(trace: Trace, probe: LaneProbe | None = None, *, cores: float | None = None) -> Calibration:
    """Fit a `Calibration` from a traced run and an optional lane probe.

    `cores` are those of one host that the job may use, where the trace does not say or is wrong. Raises
    UserError when the trace has no whole steps, no gradients or no allreduce.
    """
    seen = observe(trace)
    settings = knobs(trace)
    hosts, per_host = hosts_and_ranks(trace, probe)
    quickest_s = (
        float(np.median(seen.control_s)) / max(1, control_rounds(hosts * per_host))
        if len(seen.control_s)
        else 1.0
    )
    place = Place(
        hosts,
        per_host,
        cores if cores is not None else cores_of(trace),
        min(_LONGEST_LATENCY_S, quickest_s / 2),
    )
    direct = direct_costs(seen, place, settings["cycle_s"])
    rows = traced_rows(seen, settings["aux"])
    if probe is not None:
        rows += probe_rows(probe, place.ranks, trace_is_stock=settings["aux"] == 0)
    fit = _fit(pooled(rows), place, direct, _network_guess(seen, probe, place), _copy_guess(seen))
    entries = {**direct, **fit.entries}
    for name, info in INFO.items():
        if name not in entries:
            value = float(getattr(Parameters(), name))
            entries[name] = Fitted(value, info.unit, value / info.factor, value * info.factor, False, "prior")
    disturbed = disturbance(trace, seen, probe)
    model_error = math.hypot(fit.model_error, _INFERRED_ERROR if seen.inferred else 0.0)
    calibration = Calibration(
        entries=entries,
        fitted_names=fit.names,
        covariance=fit.covariance.tolist(),
        hosts=place.hosts,
        ranks_per_host=place.ranks_per_host,
        cores=place.cores,
        latency_s=place.latency_s,
        model_error=math.hypot(model_error, disturbed.sigma if disturbed else 0.0),
        residuals=fit.residuals,
        notes=_notes(entries, probe, seen.inferred, bool(trace.meta.hosts) or probe is not None),
        disturbed=disturbed.sentence if disturbed else None,
    )
    return _checked_on_itself(trace, seen, matched_to_the_step(trace, seen, calibration))


def _checked_on_itself(trace: Trace, seen: Observations, calibration: Calibration) -> Calibration:
    """Widen the model's error by what it misses of the very run it was made from."""
    run = simulate_step(recorded_scenario(trace, calibration, seen))
    miss = math.log(run.step_s / seen.step_s)
    return dataclasses.replace(
        calibration,
        model_error=math.hypot(calibration.model_error, miss),
        residuals={**calibration.residuals, "step": [miss]},
    )


@dataclass(frozen=True)
class _Fit:
    entries: dict[str, Fitted]
    names: list[str]
    covariance: Numbers
    residuals: dict[str, list[float]]
    model_error: float


class _Problem:
    """The least-squares problem over the logarithms of the fitted parameters."""

    def __init__(
        self,
        rows: Sequence[Row],
        place: Place,
        direct: dict[str, Fitted],
        network: Sequence[float],
        copy_s_per_byte: float | None,
    ) -> None:
        self.rows = rows
        self.place = place
        self.names = [*_FITTED, *_NETWORK]
        self.base = Parameters(**{name: entry.value for name, entry in direct.items()})
        if copy_s_per_byte is not None:
            self.base = self.base.replaced(
                copy_s_per_byte=copy_s_per_byte,
                fuse_in_s_per_byte=copy_s_per_byte,
                fuse_out_s_per_byte=copy_s_per_byte,
            )
        starts = [float(getattr(self.base, name)) for name in _FITTED] + list(network)
        factors = [INFO[name].factor for name in _FITTED] + [_NETWORK_FACTOR] * len(_NETWORK)
        self.priors = np.log(np.array(starts))
        self.widths = np.log(np.array(factors)) / Z90
        self.measured = np.array([row.measured for row in rows])

    def relative(self, vector: Numbers) -> Numbers:
        """log(model / measured) of every row."""
        values = dict(zip(self.names, np.exp(vector).tolist(), strict=True))
        cluster = Cluster.star(
            self.place.hosts,
            self.place.ranks_per_host,
            cores=self.place.cores,
            nic_bits_per_s=values.pop("nic_bits_per_s"),
            flow_cap_bits_per_s=values.pop("flow_cap_bits_per_s"),
            latency_s=self.place.latency_s,
        )
        costs = self.base.replaced(**values)
        sites = Sites.of(cluster, costs.wire_efficiency)
        modelled = np.array([row.formula(sites, costs) for row in self.rows], dtype=float)
        return np.asarray(np.log(modelled / self.measured))

    def solve(self, errors: Numbers, starts: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
        """Best vector over several starts, and the Jacobian of rows and priors there."""

        def loss(vector: Numbers) -> Numbers:
            # soft L1 on the data, plain squares on the prior: scipy's own loss would also soften the prior.
            scaled = self.relative(vector) / errors
            robust = np.sign(scaled) * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))
            return np.concatenate([robust, (vector - self.priors) / self.widths])

        tries = []
        for start in starts:
            tries.append(optimize.least_squares(loss, start, x_scale=self.widths, max_nfev=60))  # type: ignore[operator]
            if tries[-1].cost < 0.5 * len(self.rows):
                break
        best = min(tries, key=lambda found: float(found.cost))
        return best.x, self.slopes(best.x)

    def slopes(self, vector: Numbers) -> Numbers:
        """Derivatives of the rows' log(model) by the log parameters, central differences, shape (rows, names)."""
        moves = 1e-3 * np.eye(len(vector))
        return np.stack(
            [(self.relative(vector + m) - self.relative(vector - m)) / 2e-3 for m in moves], axis=1
        )


def _fit(
    rows: Sequence[Row],
    place: Place,
    direct: dict[str, Fitted],
    network: Sequence[float],
    copy_s_per_byte: float | None,
) -> _Fit:
    problem = _Problem(rows, place, direct, network, copy_s_per_byte)
    statistical = np.array([row.error for row in rows])
    errors = np.hypot(statistical, _first_errors(rows))
    # Which limit binds where (cap, NIC, cores) makes kinks: start from several flow caps, keep the best.
    cap = len(_FITTED)
    starts = [problem.priors + shift * np.eye(len(problem.priors))[cap] for shift in (0.0, 0.5, -0.5)]
    vector, slopes = problem.solve(errors, starts)
    for _ in range(2):
        floors = _missed(rows, problem.relative(vector), statistical, errors, slopes, problem.widths)
        errors = np.hypot(statistical, floors)
        vector, slopes = problem.solve(errors, [vector])
    covariance = _covariance(slopes, errors, problem.widths)
    return _as_fit(problem, vector, covariance, floors)


def _first_errors(rows: Sequence[Row]) -> Numbers:
    first = {Group.TIME: 0.03, Group.COPY: 0.1, Group.CPU: 0.2, Group.HINT: _HINT_ERROR}
    return np.array([first[row.group] for row in rows])


def _covariance(slopes: Numbers, errors: Numbers, widths: Numbers) -> Numbers:
    scaled = slopes / errors[:, None]
    return np.asarray(np.linalg.inv(scaled.T @ scaled + np.diag(1 / widths**2)))


def _missed(
    rows: Sequence[Row],
    residuals: Numbers,
    statistical: Numbers,
    errors: Numbers,
    slopes: Numbers,
    widths: Numbers,
) -> Numbers:
    """Relative error of the formulas themselves, for each row that of its group.

    Found where the median of the group's studentised residuals is that of a normal distribution.
    """
    scaled = slopes / errors[:, None]
    leverage = np.einsum("ij,jk,ik->i", scaled, _covariance(slopes, errors, widths), scaled)
    free = np.sqrt(np.clip(1 - leverage, 0.2, 1.0))
    floors = np.full(len(rows), _HINT_ERROR)
    for group in (Group.TIME, Group.COPY, Group.CPU):
        members = np.array([row.group is group for row in rows])
        if not members.any():
            continue
        away = np.abs(residuals[members]) / free[members]

        # Few rows say little about their own scale: a weak expectation counts as three more of them.
        def scale(floor: float, away: Numbers = away, members: Numbers = members) -> float:
            each = np.concatenate(
                [
                    away / np.hypot(statistical[members], floor),
                    np.full(3, 0.6745 * _EXPECTED_MISS / max(floor, 1e-6)),
                ]
            )
            return 1.4826 * float(np.median(each)) - 1.0

        floors[members] = 0.0 if scale(1e-6) <= 0 else optimize.brentq(scale, 1e-6, 2.0)
    return floors


def _as_fit(problem: _Problem, vector: Numbers, covariance: Numbers, floors: Numbers) -> _Fit:
    residuals: dict[str, list[float]] = {}
    for row, error in zip(problem.rows, problem.relative(vector), strict=True):
        residuals.setdefault(row.source, []).append(round(float(error), 5))
    sources = ", ".join(f"{len(values)} x {source}" for source, values in residuals.items())
    entries = {}
    for number, name in enumerate(problem.names):
        value, sigma = math.exp(vector[number]), math.sqrt(covariance[number, number])
        identified = bool(sigma < min(_IDENTIFIED * problem.widths[number], _WIDEST))
        entries[name] = Fitted(
            value,
            INFO[name].unit if name in INFO else NETWORK_UNITS[name],
            value * math.exp(-Z90 * sigma),
            value * math.exp(Z90 * sigma),
            identified,
            sources if identified else "prior: these data do not identify it",
        )
    timed = [floor for row, floor in zip(problem.rows, floors, strict=True) if row.group is Group.TIME]
    return _Fit(entries, problem.names, covariance, residuals, max([_LEAST_MODEL_ERROR, *timed]))


def _copy_guess(seen: Observations) -> float | None:
    """Where the search for the costs of copies starts: what fusion copies take a byte beside nothing else.

    Copies for the lanes are no other work, and a trace alone does not show them apart.
    """
    alone = seen.fuse[(seen.fuse["busy_s"] <= 0) & (seen.fuse["update_s"] <= 0)]
    alone = alone[(alone["bytes"] >= LEAST_FUSION_BYTES) & (alone["seconds"] > 0)]
    return float((alone["seconds"] / alone["bytes"]).median()) if len(alone) else None


def _network_guess(seen: Observations, probe: LaneProbe | None, place: Place) -> tuple[float, float]:
    """Where the search for the per-flow cap and the NIC rate starts: the best rates anything reached, in bit/s."""
    wire = 2.0 * (place.hosts - 1) / place.hosts if place.hosts > 1 else 1.0
    efficiency = Parameters().wire_efficiency

    def rate(nbytes: float, seconds: float) -> float:
        return wire * nbytes * 8 / seconds / efficiency

    pairs = zip(seen.buckets["bytes"], seen.buckets["seconds"], strict=True)
    flow = max(rate(float(nbytes), float(seconds)) for nbytes, seconds in pairs)
    nic = 4 * flow
    if probe is not None:
        flow = max([flow, *(rate(row.bytes, min(row.seconds)) for row in probe.rows if row.aux <= 1)])
        nic = max([1.5 * flow, *(rate(row.bytes, min(row.seconds)) for row in probe.rows)])
    return 1.05 * flow, 1.05 * nic


def _notes(
    entries: dict[str, Fitted], probe: LaneProbe | None, inferred: bool, hosts_known: bool
) -> list[str]:
    unknown = [name for name, entry in entries.items() if not entry.identified]
    notes = []
    if unknown:
        notes.append("not identified by these data, a prior stands in: " + ", ".join(unknown))
    if probe is None:
        notes.append(
            "no lane probe: what lanes cost and how fast the NIC is are priors; probe to narrow the intervals"
        )
    if inferred:
        notes.append(
            "the trace marks no forward or backward pass: what lies between the last gradient of a step and the first "
            "of the next is taken for the forward pass, optimizer included"
        )
    if not hosts_known:
        notes.append("the trace does not say which ranks share a host: each is taken for a host of its own")
    return notes
