"""Horovod's own two numeric knobs, chosen together with the lane count.

Fusion threshold and cycle time are looked for where the counts come out best: every pair of a small grid, at the
three best counts. The recorded pair is kept unless another one is better by more than 1 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ..model.prediction import predict
from ..model.scenario import Scenario
from ..units import format_seconds
from .horovod_settings import HorovodSettings

FUSION_BYTES = tuple(mebi << 20 for mebi in (1, 4, 16, 32, 64, 128))
CYCLES_S = (0.5e-3, 1e-3, 2.5e-3, 5e-3)
_COUNTS = 3
_WORTH = 0.01


@dataclass(frozen=True)
class Knobs:
    """Horovod's fusion threshold in bytes and cycle time in s."""

    fusion_bytes: int
    cycle_s: float

    def variables(self) -> dict[str, str]:
        """The environment that sets them."""
        return HorovodSettings(self.fusion_bytes / 2**20, self.cycle_s * 1e3).variables()

    def options(self) -> list[str]:
        """The options of `run` that set them in every rank."""
        return [
            "--fusion-threshold-mb",
            f"{self.fusion_bytes / 2**20:.12g}",
            "--cycle-time-ms",
            f"{self.cycle_s * 1e3:g}",
        ]

    def to_json(self) -> dict[str, float]:
        """As plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"fusion threshold {self.fusion_bytes / 2**20:g} MiB, cycle time {format_seconds(self.cycle_s)}"
        )


def best_knobs(
    scenario: Scenario, counts: Sequence[int], step_s: Callable[[Scenario], float] | None = None
) -> Knobs:
    """The pair with the shortest predicted step of `scenario` at any of `counts`."""
    predicted = step_s or (lambda one: predict(one, intervals=False).step_s)
    recorded = Knobs(scenario.fusion_bytes, scenario.cycle_s)
    at_recorded = {aux: predicted(scenario.with_lanes(aux)) for aux in counts}
    candidates = sorted(at_recorded, key=lambda aux: at_recorded[aux])[:_COUNTS]
    best, best_s = recorded, min(at_recorded.values()) * (1 - _WORTH)
    for fusion_bytes in FUSION_BYTES:
        for cycle_s in CYCLES_S:
            for aux in candidates:
                tried_s = predicted(
                    scenario.with_lanes(aux).replaced(fusion_bytes=fusion_bytes, cycle_s=cycle_s)
                )
                if tried_s < best_s:
                    best, best_s = Knobs(fusion_bytes, cycle_s), tried_s
    return best
