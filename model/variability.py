"""How steps differ from one another, and what waiting for the slowest rank costs.

Compute times of a step are log-normal; a share of their variance hits all ranks at once, the rest is each
rank's own. A collective waits for the slowest rank, so the more ranks, the longer the typical step.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .scenario import Scenario
    from .step import StepRun

DRAWS = 400


def largest_of(count: int) -> float:
    """Expected largest of `count` independent standard normal draws (Blom's approximation)."""
    return 0.0 if count <= 1 else NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def slowest_factor(scenario: Scenario) -> float:
    """Compute time of the slowest rank over that of the slowest among the ranks the workload was seen on."""
    work = scenario.workload
    own = work.spread.compute * math.sqrt(1 - work.spread.correlation)
    return math.exp(own * (largest_of(scenario.cluster.ranks) - largest_of(work.ranks_seen)))


def step_draws(
    scenario: Scenario, run: StepRun, seed: int = 0, draws: int = DRAWS
) -> npt.NDArray[np.float64]:
    """Step times of `draws` steps that differ as the workload's spread says, shape (draws,), in s.

    The buckets keep their members; when each begins follows from the drawn ready times and durations:
    start = max(last gradient ready on the slowest rank, end of the bucket before).
    """
    spread = scenario.workload.spread
    random = np.random.default_rng(seed)
    ranks = scenario.cluster.ranks
    shared = random.standard_normal(draws) * math.sqrt(spread.correlation)
    own = random.standard_normal((draws, min(ranks, 256))) * math.sqrt(1 - spread.correlation)
    own_max = own.max(axis=1) - float(np.median(own.max(axis=1)))
    slow = np.exp(spread.compute * (shared + own_max))
    end = np.zeros(draws)
    for bucket in run.buckets:
        ready = bucket.ready_s * slow
        lasts = bucket.end_s - bucket.start_s
        wait = bucket.start_s - max(bucket.ready_s, 0.0)
        free = np.maximum(ready + min(max(wait, 0.0), scenario.cycle_s * 2), end)
        end = free + lasts * np.exp(spread.communication * random.standard_normal(draws))
    tail = run.step_s - max(run.last_done_s, run.backward_end_s)
    total = np.maximum(end, run.backward_end_s * slow) + tail
    # Centred on the deterministic step: the recursion leaves out what the simulation resolves.
    return np.asarray(total * (run.step_s / float(np.median(total))))
