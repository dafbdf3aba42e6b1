"""Fluid contention on SimPy: activities share resources max-min fairly; rates change when one starts or ends.

    env = simpy.Environment()
    fluid = Fluid(env, {"cpu": 1.0, "nic_out": 125e6})
    yield fluid.start(Activity("transfer", amount=1e6, needs={"nic_out": 1.0, "cpu": 2e-9}, bound=31e6))

Between two changes all rates are constant, so the only events are starts and ends. Several starts at one
instant cost one allocation: it is made after all ordinary events of that instant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import simpy
from simpy.core import SimTime

from .maxmin import Demand, max_min_rates

_AFTER_ALL_STARTS = 2
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Activity:
    """Work of `amount` units: a unit needs ``needs[resource]`` of each resource; at most `bound` units/s.

    ``weight`` is the share it gets where it competes. ``amount=math.inf`` lasts until it is cancelled.
    """

    name: str
    amount: float
    needs: Mapping[str, float] = field(default_factory=dict)
    bound: float = math.inf
    weight: float = 1.0

    def slowed(self, factor: float) -> Activity:
        """The same work where each unit needs `factor` times as much of everything."""
        needs = {name: need * factor for name, need in self.needs.items()}
        return Activity(self.name, self.amount, needs, self.bound / factor, self.weight / factor)


class Running(simpy.Event):
    """A started activity; as a SimPy event it triggers with its duration in seconds when the work is done."""

    def __init__(self, env: simpy.Environment, activity: Activity) -> None:
        super().__init__(env)
        self.activity = activity
        self.demand = Demand(activity.needs, activity.bound, activity.weight)
        self.left = activity.amount
        self.rate = 0.0
        self.started_s = env.now


class Fluid:
    """The shared resources of one simulated cluster: capacities in units per second by name."""

    def __init__(self, env: simpy.Environment, capacity: Mapping[str, float]) -> None:
        self.env = env
        self.capacity = dict(capacity)
        self.busy: dict[str, float] = dict.fromkeys(self.capacity, 0.0)
        self._running: list[Running] = []
        self._settled_s: SimTime = env.now
        self._next: simpy.Event | None = None
        self._allocation_due = False

    def start(self, activity: Activity) -> Running:
        """Begin `activity` now; yield the returned event to wait for its end."""
        running = Running(self.env, activity)
        if activity.amount <= 0.0:
            running.succeed(0.0)
            return running
        self._running.append(running)
        self._allocate_soon()
        return running

    def cancel(self, running: Running) -> None:
        """Take an unfinished activity away; its event never triggers."""
        if running in self._running:
            self._settle()
            self._running.remove(running)
            self._allocate_soon()

    def _allocate_soon(self) -> None:
        if not self._allocation_due:
            self._allocation_due = True
            event = simpy.Event(self.env)
            event.callbacks.append(self._allocate)
            event._ok, event._value = True, None
            self.env.schedule(event, priority=_AFTER_ALL_STARTS)  # type: ignore[arg-type]

    def _settle(self) -> None:
        elapsed = self.env.now - self._settled_s
        self._settled_s = self.env.now
        if elapsed <= 0.0:
            return
        for running in self._running:
            running.left -= running.rate * elapsed
            for name, need in running.activity.needs.items():
                self.busy[name] += need * running.rate * elapsed

    def _allocate(self, _event: simpy.Event) -> None:
        self._allocation_due = False
        self._settle()
        self._reschedule()

    def _reschedule(self) -> None:
        if not self._running:
            self._next = None
            return
        rates = max_min_rates([running.demand for running in self._running], self.capacity)
        wait = math.inf
        for running, rate in zip(self._running, rates, strict=True):
            running.rate = rate
            if rate > 0.0:
                wait = min(wait, running.left / rate)
        if wait < math.inf:
            self._next = self.env.timeout(max(0.0, wait))
            self._next.callbacks.append(self._finish)
        else:
            self._next = None

    def _finish(self, event: simpy.Event) -> None:
        if event is not self._next:
            return
        self._settle()
        done = [
            r for r in self._running if r.left <= _ROUNDING * r.activity.amount or r.left <= r.rate * 1e-12
        ]
        self._running = [running for running in self._running if running not in done]
        for running in done:
            running.succeed(self.env.now - running.started_s)
        self._allocate_soon()
