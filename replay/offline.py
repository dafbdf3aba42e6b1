"""Play a recorded run again in the simulator and hold it against the recording, kind by kind.

1. The trace's own workload, hosts and settings become a scenario; compute times are freed of the contention
   they were recorded under (`model.recorded`).
2. The model simulates it, at the recorded lane count or another one.
3. Both are reduced to the same figures: the median step time, and per kind of event the seconds a rank spends
   in it during one step (a sum over events; tensors overlap, so their sums exceed the step).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..model.calibration import Calibration
from ..model.fitting import calibrate
from ..model.prediction import Prediction, predict
from ..model.recorded import recorded_scenario
from ..tracer.trace import Trace

SIMULATED_STEPS = 3


@dataclass(frozen=True)
class PhaseTotal:
    """Seconds of one kind of event per step and rank: median over steps and ranks."""

    kind: str
    recorded_s: float | None
    replayed_s: float | None


@dataclass(frozen=True)
class Replay:
    """A replayed run beside its recording; `same_settings` is false when the user changed something."""

    recorded_step_s: float
    prediction: Prediction
    phases: list[PhaseTotal]
    same_settings: bool

    @property
    def error(self) -> float:
        """(replayed - recorded) / recorded of the median step time; means accuracy only at the same settings."""
        return self.prediction.step_s / self.recorded_step_s - 1


def replay_offline(
    trace: Trace,
    calibration: Calibration | None = None,
    *,
    aux: int | None = None,
    output: Path | None = None,
) -> Replay:
    """Replay `trace` in the simulator; without a `calibration` one is fitted to the trace itself.

    `output` keeps the simulated run as a trace. Raises UserError when the trace has no whole step.
    """
    scenario = recorded_scenario(trace, calibration or calibrate(trace))
    same = aux is None or aux == scenario.aux
    prediction = predict(scenario if aux is None else scenario.replaced(aux=aux))
    with tempfile.TemporaryDirectory() as scratch:
        simulated = prediction.to_trace(output or Path(scratch) / "replayed", steps=SIMULATED_STEPS)
        phases = _joined(phase_totals(trace), phase_totals(simulated))
    return Replay(recorded_step_s(trace), prediction, phases, same)


def recorded_step_s(trace: Trace) -> float:
    """Median step time over all whole steps and ranks of a trace, in s; its first step (uncached) left out."""
    times = trace.step_times()
    whole = times[times["step"] > times["step"].min()] if times["step"].nunique() > 1 else times
    return float((whole["t_end_ns"] - whole["t_start_ns"]).median()) * 1e-9


def phase_totals(trace: Trace) -> pd.DataFrame:
    """Seconds per kind: columns kind, seconds; the median over steps and ranks of a step's sum."""
    totals = trace.query(
        """
        with whole as (select distinct step from events where kind = 'forward' and step >= 0),
        sums as (
            select kind, rank, step, sum(t_end_ns - t_start_ns) * 1e-9 as seconds from events
            where step in (select step from whole) and rank is not null
              and (kind <> 'negotiate' or tensor is not null)
            group by kind, rank, step
        )
        select kind, median(seconds) as seconds from sums group by kind order by kind
        """
    )
    return totals


def _joined(recorded: pd.DataFrame, replayed: pd.DataFrame) -> list[PhaseTotal]:
    both = recorded.merge(replayed, on="kind", how="outer", suffixes=("_recorded", "_replayed"))
    return [
        PhaseTotal(str(row.kind), _number(row.seconds_recorded), _number(row.seconds_replayed))
        for row in both.itertuples(index=False)
    ]


def _number(value: Any) -> float | None:
    return None if value != value else float(value)
