"""What all processes of one simulation share: time, resources, costs, and the record of what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import simpy

from ..tracer.schema import Kind
from .fluid import Fluid
from .scenario import Scenario


@dataclass(frozen=True)
class Mark:
    """One simulated interval on a host; the fields mean what the Trace schema says."""

    kind: Kind
    host: str
    start_s: float
    end_s: float
    tensor: str | None = None
    layer: str | None = None
    bucket: int | None = None
    bytes: int | None = None
    lane: int | None = None


class World:
    """One simulation's clock and resources. ``watching`` is true during the step that is reported."""

    def __init__(self, scenario: Scenario, record: bool) -> None:
        self.scenario = scenario
        self.workload = scenario.workload
        self.costs = scenario.parameters
        self.sites = scenario.sites
        self.env = simpy.Environment()
        self.fluid = Fluid(self.env, self.sites.capacity)
        self.record = record
        self.marks: list[Mark] = []
        self.origin_s = 0.0
        self.computing = 0
        threads = self.workload.cpu_share if self.workload.device == "cpu" else 0.0
        self._turns = self.sites.turns_before(threads) if threads > 0 else 0.0

    def waking_s(self, times: int) -> float:
        """Seconds that Horovod's threads wait for a core when they wake `times` times from now on."""
        return times * self._turns * self.costs.busy_wait_s if self.computing else 0.0

    def mark(self, kind: Kind, host: str, start_s: float, end_s: float | None = None, **fields: Any) -> None:
        """Note an interval of one host that ends now, or at `end_s`."""
        if self.record:
            end_s = self.env.now if end_s is None else end_s
            self.marks.append(Mark(kind, host, start_s, end_s, **fields))

    def mark_all(self, kind: Kind, start_s: float, end_s: float | None = None, **fields: Any) -> None:
        """Note an interval that ends now, or at `end_s`, on every simulated host."""
        if self.record:
            for host in self.sites.hosts:
                self.mark(kind, host.name, start_s, end_s, **fields)
