"""What-if: predict every lane count of every setting, choose in each, and say what holds it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import UserError
from .axes import MAX_SCENARIOS, Setting
from .bottleneck import limiting, sentence
from .calibration import Calibration
from .choice import DEFAULT_MIN_GAIN, Choice, choose
from .critical import critical_path
from .prediction import Prediction, predict
from .workload import Workload


@dataclass(frozen=True)
class Answer:
    """Predictions of one setting over the lane counts, the choice among them, and what holds them back.

    ``limits`` names for each prediction the resource of which 10 % more would gain most.
    """

    setting: Setting
    predictions: list[Prediction]
    choice: Choice
    limits: list[str]
    bottleneck: str

    @property
    def chosen(self) -> Prediction:
        """The prediction at the chosen count, or the best where that count was not asked for."""
        asked = [p for p in self.predictions if p.aux == self.choice.aux]
        return asked[0] if asked else min(self.predictions, key=lambda p: p.step_s)

    def rows(
        self, price_per_host_hour: float | None = None, epoch_samples: int | None = None
    ) -> list[dict[str, Any]]:
        """One flat row of plain numbers for each prediction, for JSON, CSV and Parquet."""
        stock = next((p.step_s for p in self.predictions if p.aux == 0), None)
        rows = []
        for p, limit in zip(self.predictions, self.limits, strict=True):
            row = {
                "aux": p.aux,
                "step_s": p.step_s,
                "low_s": p.low_s,
                "high_s": p.high_s,
                "p5_s": p.p5_s,
                "p95_s": p.p95_s,
                "exposed_s": p.exposed_s,
                "samples_per_s": p.samples_per_s,
                "scaling_efficiency": p.scaling_efficiency,
                "speedup": None if stock is None else stock / p.step_s,
                "limited_by": limit,
            }
            if price_per_host_hour is not None and epoch_samples is not None:
                hours = epoch_samples / p.samples_per_s / 3600
                row["epoch_cost"] = hours * price_per_host_hour * self.setting.hosts
            rows.append(row)
        return rows

    def to_json(
        self, price_per_host_hour: float | None = None, epoch_samples: int | None = None
    ) -> dict[str, Any]:
        """The answer as plain data."""
        predicted = self.rows(price_per_host_hour, epoch_samples)
        for row, prediction in zip(predicted, self.predictions, strict=True):
            row["busy"] = prediction.busy
        return {
            **self.setting.to_json(),
            "chosen_aux": self.choice.aux,
            "reason": self.choice.reason,
            "bottleneck": self.bottleneck,
            "critical_path": [asdict(part) for part in critical_path(self.chosen.scenario, self.chosen.run)],
            "predicted": predicted,
        }


@dataclass(frozen=True)
class Grid:
    """All settings and lane counts of one question; ``others`` are the workloads of settings that name their ``model``."""

    workload: Workload
    calibration: Calibration
    aux: Sequence[int]
    settings: Sequence[Setting]
    min_gain: float = DEFAULT_MIN_GAIN
    intervals: bool = True
    others: Mapping[str, Workload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size > MAX_SCENARIOS:
            raise UserError(
                f"{self.size} scenarios are asked for; narrow the ranges to {MAX_SCENARIOS} or fewer"
            )

    @property
    def size(self) -> int:
        """Number of scenarios."""
        return len(self.aux) * len(self.settings)

    def workload_of(self, setting: Setting) -> Workload:
        """What is trained in `setting`."""
        return self.others.get(setting.model, self.workload)

    def answer(self, setting: Setting) -> Answer:
        """Predict all lane counts of one setting."""
        work = self.workload_of(setting)
        predictions = [
            predict(setting.scenario(work, self.calibration, aux), intervals=self.intervals)
            for aux in self.aux
        ]
        limits: list[str] = []
        for prediction in predictions:
            limits.append(limiting(prediction, limits[-1] if limits else None))
        return Answer(
            setting, predictions, choose(predictions, self.min_gain), limits, sentence(predictions, limits)
        )

    def answers(self) -> Iterator[Answer]:
        """Setting by setting."""
        for setting in self.settings:
            yield self.answer(setting)
