"""Weighted max-min fair rates of activities that need several resources at once: a pure function.

Activity a advances at rate x_a; it uses ``demand[a, r] * x_a`` of resource r, whose capacity is C_r, and is
never faster than ``bound_a``. The allocation is the weighted max-min fair one: no x_a / w_a can grow without
shrinking an equal or smaller one. It is found by progressive filling (Bertsekas and Gallager, *Data Networks*,
6.5.2): raise the common level x_a / w_a until a resource is full or a bound is met, freeze the activities
held back there, go on with the rest. At most one round an activity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Demand:
    """What one activity needs per unit of progress, how fast it can go at most, and its weight."""

    needs: Mapping[str, float] = field(default_factory=dict)
    bound: float = math.inf
    weight: float = 1.0


def max_min_rates(demands: Sequence[Demand], capacity: Mapping[str, float]) -> list[float]:
    """Rates in the order of `demands`; ``inf`` for one that needs nothing and has no bound.

    `capacity` gives units per second for each resource named in a demand.
    """
    count = len(demands)
    rates = [0.0] * count
    load: dict[str, float] = {}
    users: dict[str, list[int]] = {}
    for number, demand in enumerate(demands):
        for name, need in demand.needs.items():
            if need > 0.0:
                load[name] = load.get(name, 0.0) + need * demand.weight
                users.setdefault(name, []).append(number)
    left = {name: capacity[name] for name in load}
    growing = set(range(count))
    while growing:
        level = min((left[name] / load[name] for name in load), default=math.inf)
        by_bound = min(demands[number].bound / demands[number].weight for number in growing)
        if by_bound <= level:
            frozen = [n for n in growing if demands[n].bound / demands[n].weight <= by_bound]
            for number in frozen:
                rates[number] = demands[number].bound
        else:
            full = [name for name in load if left[name] / load[name] <= level * (1 + 1e-12)]
            frozen = sorted({number for name in full for number in users[name] if number in growing})
            for number in frozen:
                rates[number] = level * demands[number].weight
        for number in frozen:
            growing.discard(number)
            for name, need in demands[number].needs.items():
                if name in load and need > 0.0:
                    left[name] = max(0.0, left[name] - need * rates[number])
                    load[name] -= need * demands[number].weight
        for name in [name for name, names in users.items() if name in load and growing.isdisjoint(names)]:
            del load[name]
    return rates
