"""Play a recorded run again in the simulator and hold it against the recording, kind by kind.

1. The trace's own workload, hosts and settings become a scenario; compute times are freed of the contention
   they were recorded under (`model.recorded`). What another tool's trace does not say is filled in and named.
2. The model simulates it, at the recorded settings or with some of them changed.
3. Both are reduced to the same figures: the median step time, and per kind of event the seconds a rank spends
   in it during one step (a sum over events; tensors overlap, so their sums exceed the step).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import UserError
from ..model.calibration import Calibration
from ..model.fitting import calibrate
from ..model.middle import middle_mean
from ..model.prediction import Prediction, predict
from ..model.recorded import recorded_scenario
from ..model.scenario import Scenario
from ..tracer.trace import Trace
from .imported import imported_workload
from .live import scaled
from .settings import with_settings

SIMULATED_STEPS = 3


@dataclass(frozen=True)
class PhaseTotal:
    """Seconds of one kind of event per step and rank: median over steps and ranks."""

    kind: str
    recorded_s: float | None
    replayed_s: float | None


@dataclass(frozen=True)
class Replay:
    """A replayed run beside its recording; `same_settings` is false when the user changed something.

    ``recorded_step_s`` is None where the trace (another tool's) shows no step's time. ``tensors`` has per
    gradient its bytes and the seconds from ready to reduced, recorded and replayed. ``filled`` are sentences on
    what the trace did not say.
    """

    recorded_step_s: float | None
    prediction: Prediction
    phases: list[PhaseTotal]
    same_settings: bool
    tensors: pd.DataFrame = field(repr=False)
    steps: pd.DataFrame = field(repr=False)
    filled: list[str] = field(default_factory=list)

    @property
    def error(self) -> float | None:
        """(replayed - recorded) / recorded of the median step time; means accuracy only at the same settings."""
        if self.recorded_step_s is None:
            return None
        return self.prediction.step_s / self.recorded_step_s - 1


@dataclass(frozen=True)
class Subject:
    """What is played: the scenario as recorded, the recorded step time where there is one, what was filled in."""

    scenario: Scenario
    step_s: float | None
    filled: list[str]


def subject_of(trace: Trace, calibration: Calibration | None = None) -> Subject:
    """The recorded run of `trace` as a scenario; another tool's trace as far as it goes, the rest filled in.

    Raises UserError when a recorded trace has no whole steps.
    """
    if not trace.meta.source.startswith("imported"):
        return Subject(recorded_scenario(trace, calibration or calibrate(trace)), recorded_step_s(trace), [])
    try:
        scenario = recorded_scenario(trace, calibration or calibrate(trace))
        return Subject(scenario, recorded_step_s(trace), _inferred(trace))
    except UserError:
        imported = imported_workload(trace)
    costs = calibration or Calibration.prior()
    filled = list(imported.filled)
    if calibration is None:
        filled.append(
            "the network and the costs are typical values (NIC 10 Gbit/s): give --calibration or --set"
        )
    cluster = costs.cluster(hosts=imported.ranks, ranks_per_host=1)
    return Subject(Scenario(imported.workload, cluster, costs), imported.step_s, filled)


def _inferred(trace: Trace) -> list[str]:
    """What the model inferred of an imported trace that shows whole steps."""
    marked = trace.query("select count(*) as n from events where kind in ('forward', 'backward')")["n"][0]
    if marked:
        return []
    return ["no forward and backward passes are marked: they end with the first and the last gradient"]


def replay_offline(
    trace: Trace,
    calibration: Calibration | None = None,
    *,
    aux: int | None = None,
    scale: float = 1.0,
    settings: Sequence[str] = (),
    output: Path | None = None,
) -> Replay:
    """Replay `trace` in the simulator; without a `calibration` one is fitted to the trace itself.

    `settings` are ``key=value`` texts, see `settings`; `scale` makes every gradient so many times as large. `output` keeps the simulated run as a trace. Raises
    UserError when the trace has no whole step.
    """
    subject = subject_of(trace, calibration)
    scenario = with_settings(subject.scenario, settings)
    if scale != 1.0:
        scenario = scenario.replaced(workload=scaled(scenario.workload, scale))
    if aux is not None:
        scenario = scenario.with_lanes(aux)
    same = scenario == subject.scenario
    prediction = predict(scenario)
    with tempfile.TemporaryDirectory() as scratch:
        simulated = prediction.to_trace(output or Path(scratch) / "replayed", steps=SIMULATED_STEPS)
        phases = _joined(phase_totals(trace), phase_totals(simulated))
        tensors = tensor_delays(trace).merge(
            tensor_delays(simulated), on="tensor", how="outer", suffixes=("_recorded", "_replayed")
        )
    return Replay(subject.step_s, prediction, phases, same, tensors, step_seconds(trace), subject.filled)


def step_seconds(trace: Trace) -> pd.DataFrame:
    """Seconds of every recorded step, the slowest rank's: columns step, seconds."""
    times = trace.step_times()
    times = times.assign(seconds=(times["t_end_ns"] - times["t_start_ns"]) * 1e-9)
    return times.groupby("step")["seconds"].max().reset_index()


def recorded_step_s(trace: Trace) -> float:
    """Median step time over all whole steps and ranks of a trace, in s; its first step (uncached) left out."""
    times = trace.step_times()
    whole = times[times["step"] > times["step"].min()] if times["step"].nunique() > 1 else times
    return float((whole["t_end_ns"] - whole["t_start_ns"]).median()) * 1e-9


def phase_totals(trace: Trace) -> pd.DataFrame:
    """Seconds per kind: columns kind, seconds; a step's sum without the waiting of ranks for one another, the middle half of the steps.

    The ranks begin a negotiation or an allreduce at different times and end it together: the last to come shows what it takes.
    A gradient is ready, and backward over, when the last rank has it. Of what each rank does for itself the mean over ranks counts. Where no
    forward pass marks the steps, every step counts.
    """
    sums = trace.query(
        """
        with whole as (select distinct step from events where kind = 'forward' and step >= 0),
        spans as (
            select kind, step, rank, tensor, bucket, sum(t_end_ns - t_start_ns) * 1e-9 as seconds from events
            where (step in (select step from whole) or (select count(*) from whole) = 0) and rank is not null
              and (kind <> 'negotiate' or tensor is not null) and kind <> 'operator'
            group by all
        ),
        ranks as (select count(distinct rank) as n from spans),
        together as (
            select kind, step, case when kind in ('negotiate', 'allreduce') then min(seconds)
                                    when kind in ('ready', 'backward') then max(seconds)
                                    else sum(seconds) / (select n from ranks) end as seconds
            from spans group by kind, step, tensor, bucket
        )
        select kind, step, sum(seconds) as seconds from together group by kind, step
        """
    )
    return sums.groupby("kind")["seconds"].agg(middle_mean).reset_index()


def tensor_delays(trace: Trace) -> pd.DataFrame:
    """Seconds from ready to reduced of each gradient: columns tensor, bytes, seconds; median over steps and ranks."""
    return trace.query(
        """
        with spans as (
            select tensor, step, rank, max(bytes) as bytes,
                   max(t_end_ns) filter (kind = 'ready') as ready_ns, max(t_end_ns) filter (kind = 'done') as done_ns
            from events where tensor is not null and step >= 1 and kind in ('ready', 'done')
            group by tensor, step, rank
        )
        select tensor, max(bytes) as bytes, median(done_ns - ready_ns) * 1e-9 as seconds
        from spans where ready_ns is not null and done_ns is not null group by tensor
        """
    )


def _joined(recorded: pd.DataFrame, replayed: pd.DataFrame) -> list[PhaseTotal]:
    both = recorded.merge(replayed, on="kind", how="outer", suffixes=("_recorded", "_replayed"))
    return [
        PhaseTotal(str(row.kind), _number(row.seconds_recorded), _number(row.seconds_replayed))
        for row in both.itertuples(index=False)
    ]


def _number(value: Any) -> float | None:
    return None if value != value else float(value)
