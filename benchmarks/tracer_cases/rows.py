"""Rows of a benchmark in the form of DESIGN section 9."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]


def row(
    case: str,
    variant: str,
    value: float,
    unit: str,
    better: str,
    target: float | None,
    runs: int,
    spread: Sequence[float] | None,
) -> Row:
    """One row; `spread` is an interval."""
    return {
        "case": case,
        "variant": variant,
        "value": value,
        "unit": unit,
        "better": better,
        "target": target,
        "runs": runs,
        "spread": None if spread is None else list(spread),
    }


def median_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median of `values` and its 95 % interval (percentile bootstrap, 4,000 draws)."""
    draws = np.random.default_rng(0).choice(np.array(values), (4000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return statistics.median(values), float(low), float(high)
