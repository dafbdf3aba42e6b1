"""What a case answers: rows of a table, with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One figure; `target` None: a row to compare with. `spread` are the quartiles, or a 95 % interval where `case` says so."""

    case: str
    variant: str
    value: float
    unit: str
    better: str
    target: float | None = None
    runs: int = 1
    spread: tuple[float, float] | None = None

    @property
    def good(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.better == "higher" else self.value <= self.target

    def to_json(self) -> dict[str, Any]:
        """As the JSON file has it."""
        return asdict(self)

    def line(self) -> str:
        """As the table has it."""
        spread = "" if self.spread is None else f"{self.spread[0]:.4g} to {self.spread[1]:.4g}"
        target = (
            "-" if self.target is None else f"{'>=' if self.better == 'higher' else '<='} {self.target:.4g}"
        )
        mark = {None: "", True: "ok", False: "MISSED"}[self.good]
        return (
            f"{self.case:<52} {self.variant:<34} {self.value:>10.4g} {self.unit:<8} {target:>10} {mark:<6} "
            f"{self.runs:>4} {spread}"
        )


HEAD = f"{'case':<52} {'variant':<34} {'value':>10} {'unit':<8} {'target':>10} {'':<6} {'runs':>4} spread"


def middle(
    case: str, variant: str, values: Sequence[float], unit: str, better: str, target: float | None = None
) -> Row:
    """The median of `values` with their quartiles."""
    low, high = np.percentile(values, [25, 75])
    return Row(case, variant, median(values), unit, better, target, len(values), (float(low), float(high)))


def interval_of_median(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval (bootstrap)."""
    draws = np.random.default_rng(0).choice(np.array(values), (2000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return median(values), float(low), float(high)


def ratio(
    case: str,
    variant: str,
    above: Sequence[float],
    below: Sequence[float],
    better: str,
    target: float | None = None,
) -> Row:
    """The median of paired ratios above / below, with the 95 % interval of that median."""
    value, low, high = interval_of_median([a / b for a, b in zip(above, below, strict=True)])
    return Row(case, variant, value, "x", better, target, len(above), (low, high))
