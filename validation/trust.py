"""When a run is not worth its numbers: others used the machine, flows shared a cap, or the steps do not agree.

Such a run is repeated; what is still noisy then is kept and marked. Nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

FOREIGN_SHARE = 0.15
"""Cores' worth of other programs, per core of the machine, from which on it counts as overloaded."""
SPREAD = 0.15


@dataclass(frozen=True)
class Visit:
    """One block of steps at one count: seconds of each after the warm-up, and cores that other programs used."""

    aux: int
    step_s: list[float]
    foreign_cores: float
    collided: bool = False

    @property
    def median_s(self) -> float:
        """Median step time, s."""
        return median(self.step_s)

    @property
    def spread(self) -> float:
        """What the middle 80 % of the steps span, as a share of the median."""
        low, high = np.quantile(self.step_s, [0.1, 0.9])
        return float(high - low) / self.median_s

    def disturbed(self, cores: int) -> str | None:
        """Why this visit does not show the job alone, or None."""
        if self.collided:
            return "flows shared one per-flow cap of the lab"
        if self.foreign_cores > FOREIGN_SHARE * cores:
            return f"other programs used {self.foreign_cores:.1f} cores"
        return None


def visits_of(runs: Sequence[dict[str, Any]], aux: int) -> list[Visit]:
    """The visits to one count in the ``run`` lines of a log."""
    return [
        Visit(aux, block["step_s"][run["warm_up"] :], block["foreign_cores"], bool(run["collisions"]))
        for run in runs
        for block in run["blocks"]
        if block["aux"] == aux
    ]


@dataclass(frozen=True)
class Measured:
    """A count as it was measured: the median over the steps of its undisturbed visits, or of all when there is none.

    `disturbed` says why none of them can be relied on; `noisy` why they do not agree.
    """

    step_s: float
    steps: int
    visits: int
    left_out: int
    spread: float
    disturbed: str | None
    noisy: str | None


def measured(visits: Sequence[Visit], cores: int) -> Measured:
    """What the visits to one count say together."""
    good = [visit for visit in visits if visit.disturbed(cores) is None]
    used = good or list(visits)
    steps = [seconds for visit in used for seconds in visit.step_s]
    whole = Visit(used[0].aux, steps, 0.0)
    medians = [visit.median_s for visit in used]
    apart = (max(medians) - min(medians)) / whole.median_s
    noisy = None
    if whole.spread > SPREAD:
        noisy = f"steps spread by {100 * whole.spread:.0f} %"
    elif apart > SPREAD:
        noisy = f"visits are {100 * apart:.0f} % apart"
    disturbed = None if good else used[-1].disturbed(cores)
    return Measured(
        whole.median_s, len(steps), len(used), len(visits) - len(used), whole.spread, disturbed, noisy
    )


def needs_another(visits: Sequence[Visit], wanted: int, cores: int) -> bool:
    """Whether a count should be visited again: too few undisturbed visits, or they do not agree."""
    good = [visit for visit in visits if visit.disturbed(cores) is None]
    return len(good) < wanted or measured(visits, cores).noisy is not None
