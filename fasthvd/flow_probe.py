"""What one TCP flow gets between the hosts of a job, and what several get together: the cap that lanes get round.

1. Ranks are started by a launch command, on the user's own hosts, and connect back to this side.
2. One rank of each host sends to the next host, the last to the first, as the lanes' rings do: all at once.
3. This is repeated with 1, 2, 4, 8 connections. A rate is the payload that the slowest host received.
4. Where two flows get clearly more than one, one flow is limited: by the network's cap, or, when the process was
   at a full core, by what one core can do.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import UserError
from ..model.parameters import Parameters
from ..tracer.launcher import LauncherKind, RankEnvironment, prepare, recognise
from ..units import format_bits_per_s
from . import flow_probe_worker
from .flow_coordinator import Coordinator, Heard
from .host_facts import HostFacts
from .instead import instead_of_the_script, run_bounded

FORMAT_VERSION = 1
FLOW_COUNTS = (1, 2, 4, 8)
_LIMIT_S = 120.0
_MORE = 1.5
"""Two flows that get so many times one flow's rate show that one flow is limited."""
_FULL_CORE = 0.9
_WITHIN = 0.95
_MANY = 100
"""Retransmits that are worth a sentence; a few come with every slow start."""


@dataclass(frozen=True)
class FlowRate:
    """With `flows` connections between neighbours: payload bit/s of the slowest host, retransmits of all hosts,
    cores of the busiest probing process, longest round trip in s.
    """

    flows: int
    bits_per_s: float
    retransmits: int
    cpu_cores: float
    round_trip_s: float
    slowest_host: str


@dataclass(frozen=True)
class FlowProbe:
    """Hosts as their ranks see them (one entry a rank, in rank order), rates by count, and the interfaces used."""

    ranks: list[HostFacts]
    rates: list[FlowRate]
    interfaces: dict[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """Host names in rank order."""
        return list(dict.fromkeys(facts.name for facts in self.ranks))

    @property
    def limited(self) -> bool:
        """Whether several flows get clearly more than one."""
        return len(self.rates) > 1 and self.best_bits_per_s >= _MORE * self.rates[0].bits_per_s

    @property
    def core_bound(self) -> bool:
        """Whether one flow kept a core full: its limit then is the core's, not the network's."""
        return bool(self.rates) and self.rates[0].cpu_cores >= _FULL_CORE

    @property
    def best_bits_per_s(self) -> float:
        """The highest rate of any count, payload."""
        return max((rate.bits_per_s for rate in self.rates), default=0.0)

    @property
    def flow_cap_bits_per_s(self) -> float | None:
        """The network's cap of one flow, on the wire; None where none shows."""
        if not self.limited or self.core_bound:
            return None
        return self.rates[0].bits_per_s / Parameters().wire_efficiency

    @property
    def flows_needed(self) -> int:
        """Flows that reach 95 % of the best rate: measured where they were tried, else one flow's rate times count."""
        if not self.rates:
            return 1
        enough = next(r.flows for r in self.rates if r.bits_per_s >= _WITHIN * self.best_bits_per_s)
        return min(enough, max(1, math.ceil(_WITHIN * self.best_bits_per_s / self.rates[0].bits_per_s)))

    def meaning(self) -> list[str]:
        """What it means for ``--aux``, in sentences."""
        if len(self.hosts) < 2:
            return ["all ranks are on one host: nothing goes over a network, and lanes share memory"]
        one = format_bits_per_s(self.rates[0].bits_per_s)
        best = format_bits_per_s(self.best_bits_per_s)
        if not self.limited:
            said = [f"one flow gets {one}, about as much as several ({best}): no cap of a flow shows"]
            said.append("more than one lane can only help where one core is too slow: let 'tune' decide")
        elif self.core_bound:
            said = [
                f"one flow gets {one} and keeps a core full; several get {best}: the limit is the core's",
                f"lanes add cores: up to --aux {self.flows_needed}, if that many cores are free beside the training",
            ]
        else:
            cap = format_bits_per_s(self.flow_cap_bits_per_s or 0.0)
            said = [
                f"one flow gets {one} of payload, several get {best}: one flow is capped at about {cap}",
                f"{self.flows_needed} flows fill what the network gives: consider --aux {self.flows_needed}",
            ]
            if self.rates[-1].bits_per_s > 1.2 * self.rates[-1].flows / 2 * self.rates[0].bits_per_s:
                said.append("the most flows tried still added rate: more may help")
        lost = sum(rate.retransmits for rate in self.rates)
        if lost > _MANY:
            said.append(f"{lost} segments were sent again in all: a shaped or crowded network drops them")
        return said

    def to_json(self) -> dict[str, Any]:
        """The answer for programs."""
        return {
            "format_version": FORMAT_VERSION,
            "hosts": self.hosts,
            "ranks": [facts.to_json() for facts in self.ranks],
            "interfaces": self.interfaces,
            "rates": [asdict(rate) for rate in self.rates],
            "flow_cap_bits_per_s": self.flow_cap_bits_per_s,
            "core_bound": self.core_bound,
            "flows_needed": self.flows_needed,
            "meaning": self.meaning(),
        }


def probe_hosts(hosts: str, *, iface: str = "", seconds: float = 2.0) -> FlowProbe:
    """Probe between `hosts` (``a,b,c``), started by the ``mpirun`` in PATH, one process a host, bound to no core.

    Raises UserError when a host cannot be started or reached.
    """
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    if len(names) < 2 or len(set(names)) != len(names):
        raise UserError(f"--probe '{hosts}' is not possible: name two or more different hosts, like a,b,c")
    kind = recognise(["mpirun"])
    count = str(len(names))
    if kind is LauncherKind.MPICH:
        launcher = ["mpirun", "-n", count, "-ppn", "1", "-hosts", ",".join(names)]
    else:
        launcher = ["mpirun", "--bind-to", "none", "--map-by", "node", "-np", count, "-H", ",".join(names)]
        if os.geteuid() == 0:
            launcher.insert(1, "--allow-run-as-root")
    words = [*launcher, sys.executable, "-m", flow_probe_worker.__name__]
    return _probe(words, FLOW_COUNTS, iface, seconds, script=True)


def probe_command(
    command: Sequence[str], counts: Sequence[int], *, iface: str = "", seconds: float = 0.7
) -> FlowProbe:
    """Probe between the hosts of the user's launch `command`; its script is not started.

    Raises UserError when the ranks do not start or do not reach one another.
    """
    return _probe(list(command), counts, iface, seconds, script=False)


def _probe(
    command: list[str], counts: Sequence[int], iface: str, seconds: float, *, script: bool
) -> FlowProbe:
    with Coordinator(secrets.token_hex(16)) as coordinator:
        variables = {flow_probe_worker.PLAN_VARIABLE: coordinator.plan(iface)}
        ranks = (
            RankEnvironment(variables=variables)
            if script
            else instead_of_the_script(flow_probe_worker.__name__, variables)
        )
        launch = prepare(command, ranks, os.environ)
        ended: list[int | UserError] = []
        thread = threading.Thread(target=_launched, args=(launch, coordinator, ended))
        thread.start()
        try:
            heard = coordinator.gather()
            rates, interfaces = _rates(coordinator, heard, counts, seconds)
        finally:
            coordinator.end()
            thread.join()
        for outcome in ended:
            if isinstance(outcome, UserError):
                raise outcome
    return FlowProbe([one.facts for one in heard], rates, interfaces)


def _launched(launch: Any, coordinator: Coordinator, ended: list[int | UserError]) -> None:
    """The launcher, until it ends; the coordinator is told so that it does not wait for ranks that never come."""
    try:
        status = run_bounded(launch.command, launch.environment, _LIMIT_S, "the flow probe")
        ended.append(status)
        coordinator.launcher_ended(status)
    except UserError as error:
        ended.append(error)
        coordinator.launcher_ended(1)


def _rates(
    coordinator: Coordinator, heard: list[Heard], counts: Sequence[int], seconds: float
) -> tuple[list[FlowRate], dict[str, str]]:
    leaders = list({one.facts.name: one for one in reversed(heard)}.values())[::-1]
    rates: list[FlowRate] = []
    interfaces: dict[str, str] = {}
    if len(leaders) < 2:
        return rates, interfaces
    for flows in counts:
        moved = coordinator.move(leaders, flows, seconds)
        slowest = min(range(len(moved)), key=lambda place: moved[place].received_bits_per_s)
        rates.append(
            FlowRate(
                flows,
                moved[slowest].received_bits_per_s,
                sum(one.retransmits for one in moved),
                max(one.cpu_cores for one in moved),
                max(one.round_trip_s for one in moved),
                leaders[slowest].facts.name,
            )
        )
        for leader, one in zip(leaders, moved, strict=True):
            interfaces[leader.facts.name] = _interface(leader.facts, one.address)
    return rates, interfaces


def _interface(facts: HostFacts, address: str) -> str:
    """Name and rate of the interface that has `address`."""
    for one in facts.interfaces:
        if address in one.addresses:
            rate = "" if one.bits_per_s is None else f" ({format_bits_per_s(one.bits_per_s)})"
            return f"{one.name}{rate}"
    return address
