"""Which control calls of the ranks are one collective, and how long it takes once all ranks are there.

The rank that arrives last does not wait for the others, so the shortest of a collective's durations is its cost. Ranks
call in the same order, but a recording need not begin at the same call on all of them, and a rank that begins a step
later has made calls of it in the step before: calls are counted over each stretch of recorded steps, and the counts
shifted against one another until the shortest durations are shortest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..tracer.schema import Kind

Numbers = npt.NDArray[np.float64]
_MOST_APART = 16
_BETTER = 0.9
"""A shift must make the mean duration that much shorter: noise alone makes some shift the best."""


def control_calls_s(events: pd.DataFrame, steps: Sequence[int]) -> Numbers:
    """Durations in s of the control calls within `steps`, as the last rank to arrive sees them."""
    calls = events[(events["kind"] == Kind.NEGOTIATE.value) & events["tensor"].isna()]
    calls = calls.sort_values("t_start_ns")
    stretch = _stretches(calls["step"])
    found = [_shortest(part, steps) for _, part in calls.groupby(stretch)]
    return np.concatenate(found) if found else np.empty(0)


def _stretches(steps: pd.Series) -> pd.Series:
    """Number of the unbroken stretch of recorded steps that each call lies in."""
    known = np.unique(steps.to_numpy())
    numbers = np.cumsum(np.diff(known, prepend=known[:1]) > 1)
    return steps.map(dict(zip(known.tolist(), numbers.tolist(), strict=True)))


def _shortest(calls: pd.DataFrame, steps: Sequence[int]) -> Numbers:
    """Over all ranks of one stretch, for every collective that each of them recorded."""
    ranks = [part for _, part in calls.groupby("rank")]
    durations = (ranks[0]["t_end_ns"] - ranks[0]["t_start_ns"]).to_numpy(dtype=float)
    inside = ranks[0]["step"].isin(steps).to_numpy()
    for rank in ranks[1:]:
        other = (rank["t_end_ns"] - rank["t_start_ns"]).to_numpy(dtype=float)
        durations = _together(durations, other, _best_shift(durations, other))
    inside = inside & np.isfinite(durations)
    return np.asarray(durations[inside] * 1e-9)


def _best_shift(one: Numbers, other: Numbers) -> int:
    means = {}
    for shift in range(-_MOST_APART, _MOST_APART + 1):
        both = _together(one, other, shift)
        both = both[np.isfinite(both)]
        if len(both) > len(one) / 2:
            means[shift] = float(both.mean())
    if not means:
        return 0
    best = min(means, key=lambda shift: (means[shift], abs(shift)))
    return best if 0 not in means or means[best] < _BETTER * means[0] else 0


def _together(one: Numbers, other: Numbers, shift: int) -> Numbers:
    """The shorter of ``one[n]`` and ``other[n + shift]``; NaN where there is no other."""
    places = np.arange(len(one)) + shift
    there = (places >= 0) & (places < len(other))
    shorter = np.full(len(one), np.nan)
    shorter[there] = np.minimum(one[there], other[places[there]])
    return shorter
