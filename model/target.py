"""What do I need for N % scaling? One resource after the other is raised until the target is met, alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from ..units import format_bits_per_s
from .axes import Setting
from .calibration import Calibration
from .prediction import Prediction, predict
from .workload import Workload

_MOST = {"cores": 4096.0, "core_speed": 100.0, "batch": 100_000.0}
_MOST_FACTOR = 1024.0
_STEPS = 12


@dataclass(frozen=True)
class Need:
    """One way to the target: the resource, its value now and the least value that suffices (None: none does)."""

    resource: str
    now: float
    needed: float | None
    aux: int
    words: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; an unlimited value is null."""
        values = dataclasses.asdict(self)
        values["now"] = self.now if math.isfinite(self.now) else None
        return values


@dataclass(frozen=True)
class TargetAnswer:
    """Scaling efficiency now at the best lane count, the target, and every way to it."""

    efficiency: float
    aux: int
    target: float
    needs: list[Need]

    @property
    def sentence(self) -> str:
        """The answer in words."""
        now = f"{self.efficiency:.0%} with {self.aux} lanes"
        if self.efficiency >= self.target:
            return f"you have {now}: {self.target:.0%} needs nothing more"
        ways = [need.words for need in self.needs if need.needed is not None]
        if not ways:
            return f"you have {now}; no single resource brings {self.target:.0%}: compute less often (a larger batch), or send less"
        return f"you have {now}; {self.target:.0%} needs " + ", or ".join(ways)

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "efficiency": self.efficiency,
            "aux": self.aux,
            "target": self.target,
            "answer": self.sentence,
            "needs": [need.to_json() for need in self.needs],
        }


def parse_target(text: str) -> float:
    """A share of perfect scaling from ``"90%"`` or ``"0.9"``."""
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UserError(f"target '{text}' is not understood: write it like 90%") from None
    if not 0 < value < 1:
        raise UserError(f"target is {text}; it must lie above 0% and below 100%")
    return value


def answer_target(
    workload: Workload, calibration: Calibration, setting: Setting, aux: Sequence[int], target: float
) -> TargetAnswer:
    """Search, for each resource alone, the least value with which the best of `aux` lanes scales to `target`."""

    def best(place: Setting) -> Prediction:
        tried = [predict(place.scenario(workload, calibration, k), intervals=False) for k in aux]
        return min(tried, key=lambda p: p.step_s)

    now = best(setting)
    needs = []
    if now.scaling_efficiency < target:
        for name, (text, print_value) in _RESOURCES.items():
            value = float(getattr(setting, name))
            if math.isfinite(value):
                needs.append(_need(setting, name, text, print_value, best, target))
    return TargetAnswer(now.scaling_efficiency, now.aux, target, needs)


_RESOURCES: dict[str, tuple[str, Callable[[float], str]]] = {
    "nic_bits_per_s": ("a NIC of", format_bits_per_s),
    "flow_cap_bits_per_s": ("flows of", format_bits_per_s),
    "cores": ("cores a host:", lambda value: f"{value:.3g}"),
    "core_speed": ("cores this many times as fast:", lambda value: f"{value:.3g}"),
    "batch": ("a batch of", lambda value: f"{value:.0f}"),
}


def _need(
    setting: Setting,
    name: str,
    text: str,
    print_value: Callable[[float], str],
    best: Callable[[Setting], Prediction],
    target: float,
) -> Need:
    now = float(getattr(setting, name))

    def raised(factor: float) -> Setting:
        value = now * factor
        changed: dict[str, Any] = {name: math.ceil(value) if name == "batch" else value}
        return dataclasses.replace(setting, **changed)

    most = max(1.0, min(_MOST_FACTOR, _MOST.get(name, math.inf) / now))
    if best(raised(most)).scaling_efficiency < target:
        return Need(name, now, None, best(setting).aux, f"{text} no value is enough")
    low, high = 0.0, math.log(most)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if best(raised(math.exp(middle))).scaling_efficiency >= target:
            high = middle
        else:
            low = middle
    place = raised(math.exp(high))
    value = float(getattr(place, name))
    lanes = best(place).aux
    return Need(name, now, value, lanes, f"{text} {print_value(value)} with {lanes} lanes")
