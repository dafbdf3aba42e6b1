"""What-if: a grid of scenarios from lists of values, predicted one by one, with the best of each setting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from .bottleneck import limiting, sentence
from .calibration import Calibration
from .choice import DEFAULT_MIN_GAIN, Choice, choose
from .cluster import Cluster
from .prediction import Prediction, predict
from .scenario import MAX_AUX, Scenario
from .workload import Workload

MAX_SCENARIOS = 100_000


def parse_values(text: str, one: Callable[[str], float], what: str) -> list[float]:
    """``"3"``, ``"2,4,8"``, or a range with both ends ``"0:8"`` or ``"0:8:2"``, each number read by `one`."""
    values: list[float] = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) == 1:
            values.append(one(ends[0]))
        elif len(ends) in (2, 3):
            low, high = one(ends[0]), one(ends[1])
            step = one(ends[2]) if len(ends) == 3 else 1.0
            if step <= 0 or high < low or (high - low) / step > MAX_SCENARIOS:
                raise UserError(
                    f"{what} '{part}': a range is LOW:HIGH or LOW:HIGH:STEP with LOW <= HIGH and STEP above 0"
                )
            values += [low + number * step for number in range(math.floor((high - low) / step + 1e-9) + 1)]
        else:
            raise UserError(f"{what} '{part}': write a value, a list 2,4,8 or a range 0:8")
    return values


def whole_number(low: int, high: int, what: str) -> Callable[[str], float]:
    """A reader of whole numbers between `low` and `high`."""

    def read(text: str) -> float:
        try:
            value = int(text)
        except ValueError:
            raise UserError(
                f"{what} '{text}' is not a whole number; it must lie between {low} and {high}"
            ) from None
        if not low <= value <= high:
            raise UserError(f"{what} is {value}; it must lie between {low} and {high}")
        return value

    return read


def read_aux(text: str) -> list[int]:
    """Lane counts from the command line."""
    return sorted({int(v) for v in parse_values(text, whole_number(0, MAX_AUX, "aux"), "aux")})


@dataclass(frozen=True)
class Setting:
    """One place to run: everything of a scenario but the lane count. None: as it was recorded or calibrated."""

    hosts: int
    ranks_per_host: int
    cores: float
    nic_bits_per_s: float
    flow_cap_bits_per_s: float
    latency_s: float

    def cluster(self) -> Cluster:
        """The star of this setting."""
        return Cluster.star(
            self.hosts,
            self.ranks_per_host,
            cores=self.cores,
            nic_bits_per_s=self.nic_bits_per_s,
            flow_cap_bits_per_s=self.flow_cap_bits_per_s,
            latency_s=self.latency_s,
        )


@dataclass(frozen=True)
class Answer:
    """Predictions of one setting over the lane counts, the choice among them, and what holds them back."""

    setting: Setting
    predictions: list[Prediction]
    choice: Choice
    bottleneck: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; an unlimited flow cap is null."""
        cap = self.setting.flow_cap_bits_per_s
        stock = next((p.step_s for p in self.predictions if p.aux == 0), None)
        return {
            "hosts": self.setting.hosts,
            "ranks_per_host": self.setting.ranks_per_host,
            "cores": self.setting.cores,
            "nic_bits_per_s": self.setting.nic_bits_per_s,
            "flow_cap_bits_per_s": cap if math.isfinite(cap) else None,
            "latency_s": self.setting.latency_s,
            "chosen_aux": self.choice.aux,
            "reason": self.choice.reason,
            "bottleneck": self.bottleneck,
            "predicted": [
                {
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
                    "limited_by": limiting(p),
                    "busy": p.busy,
                }
                for p in self.predictions
            ],
        }


@dataclass(frozen=True)
class Grid:
    """All settings and lane counts of one question; `knobs` are further fields of `Scenario`."""

    workload: Workload
    calibration: Calibration
    aux: Sequence[int]
    settings: Sequence[Setting]
    knobs: dict[str, Any] = field(default_factory=dict)
    min_gain: float = DEFAULT_MIN_GAIN

    def __post_init__(self) -> None:
        if self.size > MAX_SCENARIOS:
            raise UserError(
                f"{self.size} scenarios are asked for; narrow the ranges to {MAX_SCENARIOS} or fewer"
            )

    @property
    def size(self) -> int:
        """Number of scenarios."""
        return len(self.aux) * len(self.settings)

    def answers(self) -> Iterator[Answer]:
        """Predict setting by setting."""
        for setting in self.settings:
            cluster = setting.cluster()
            predictions = [
                predict(Scenario(self.workload, cluster, self.calibration, aux=aux, **self.knobs))
                for aux in self.aux
            ]
            yield Answer(setting, predictions, choose(predictions, self.min_gain), sentence(predictions))


def settings_of(**axes: Sequence[float]) -> list[Setting]:
    """The product of the axes hosts, ranks_per_host, cores, nic_bits_per_s, flow_cap_bits_per_s, latency_s."""
    names = list(Setting.__dataclass_fields__)
    rows = itertools.product(*(axes[name] for name in names))
    return [Setting(int(hosts), int(ranks), *others) for hosts, ranks, *others in rows]
