"""Whether hosts are fit for lanes: what `doctor` prints of this machine, and `tune` of the ranks' hosts.

A finding states what was found, for which commands it matters, and the remedy as a line to type.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from ..units import format_bits_per_s
from .flow_probe import FlowProbe
from .host_facts import HostFacts

SERVES = "run, tune, demo"
_BINDING_VARIABLES = (
    "PRTE_MCA_hwloc_default_binding_policy",
    "OMPI_MCA_hwloc_base_binding_policy",
    "HYDRA_BINDING",
)


class State(Enum):
    """How a check came out."""

    GOOD = "good"
    LIMITED = "limited"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One row: `needed` is whether the commands in `serves` cannot work without it."""

    name: str
    state: State
    found: str
    serves: str
    fix: str = ""
    needed: bool = True

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {**asdict(self), "state": self.state.value}


def cores() -> Finding:
    """How many cores a rank and its lanes can share on this machine."""
    facts = HostFacts.here()
    found = f"{facts.affinity} of {facts.cores} cores may be used"
    if facts.quota is not None and facts.quota < facts.affinity:
        found += f", a control group grants the time of {facts.quota:.3g}"
    if facts.usable_cores < 2:
        fix = "with one core lanes and training take turns; give the job more cores"
        return Finding("cores", State.LIMITED, found, SERVES, fix, needed=False)
    return Finding("cores", State.GOOD, found, SERVES)


def binding() -> Finding:
    """Whether this shell's settings make the launcher bind ranks to cores."""
    for name in _BINDING_VARIABLES:
        value = os.environ.get(name, "")
        if value and not value.startswith("none"):
            fix = f"unset {name}, or launch with --bind-to none: lanes and compute threads need more than one core"
            return Finding("binding", State.LIMITED, f"{name}={value}", SERVES, fix, needed=False)
        if value:
            return Finding("binding", State.GOOD, f"ranks are not bound ({name}={value})", SERVES)
    found = "up to the launch command: mpirun binds a rank to one core unless told --bind-to none"
    return Finding("binding", State.GOOD, found, SERVES)


def interfaces() -> Finding:
    """The network interfaces that lanes can use, with their rates where the driver says them."""
    said = [
        one.name if one.bits_per_s is None else f"{one.name} {format_bits_per_s(one.bits_per_s)}"
        for one in HostFacts.here().interfaces
    ]
    if not said:
        fix = "bring an interface up for jobs across hosts; the lab has its own"
        return Finding("interfaces", State.LIMITED, "loopback only", "jobs across hosts", fix, needed=False)
    return Finding("interfaces", State.GOOD, ", ".join(said), "jobs across hosts")


def of_job(probe: FlowProbe) -> list[Finding]:
    """The same of the hosts of a job, as its own ranks see them: cores, binding, interfaces, flows."""
    findings = [_job_cores(probe), _job_binding(probe.ranks), _job_interfaces(probe)]
    if probe.rates:
        findings.append(Finding("flows", State.GOOD, "; ".join(probe.meaning()[:1]), SERVES))
    return findings


def _job_cores(probe: FlowProbe) -> Finding:
    ranks_on = {name: [facts for facts in probe.ranks if facts.name == name] for name in probe.hosts}
    least = min(ranks_on, key=lambda name: _host_cores(ranks_on[name]) / len(ranks_on[name]))
    have, ranks = _host_cores(ranks_on[least]), len(ranks_on[least])
    found = f"host {least} has {have:.3g} cores for {ranks} rank{'s' if ranks > 1 else ''}"
    if have < 2 * ranks:
        fix = "lanes and Horovod's own thread share a core with the computing: expect less from more lanes"
        return Finding("cores", State.LIMITED, found, SERVES, fix, needed=False)
    return Finding("cores", State.GOOD, found, SERVES)


def _host_cores(ranks: Sequence[HostFacts]) -> float:
    """Cores that the ranks of one host have together, as far as one of them can tell."""
    one = ranks[0]
    bound = one.cores if one.affinity == 1 and one.cores > 1 else one.affinity
    return float(bound) if one.quota is None else min(float(bound), one.quota)


def _job_binding(ranks: Sequence[HostFacts]) -> Finding:
    bound = [number for number, facts in enumerate(ranks) if facts.affinity == 1 and facts.cores > 1]
    if bound:
        facts = ranks[bound[0]]
        found = f"rank {bound[0]} on {facts.name} is bound to 1 of {facts.cores} cores"
        if len(bound) > 1:
            found += f", and {len(bound) - 1} other rank{'s' if len(bound) > 2 else ''} too"
        fix = "launch with --bind-to none: its compute threads, Horovod's thread and the network take turns on it"
        return Finding("binding", State.LIMITED, found, SERVES, fix, needed=False)
    return Finding("binding", State.GOOD, "no rank is bound to one core of several", SERVES)


def _job_interfaces(probe: FlowProbe) -> Finding:
    alone = [facts.name for facts in probe.ranks if not facts.interfaces]
    if alone and len(probe.hosts) > 1:
        fix = "bring an interface up there"
        return Finding("interfaces", State.MISSING, f"host {alone[0]} has loopback only", SERVES, fix)
    used = ", ".join(f"{host} {name}" for host, name in probe.interfaces.items())
    return Finding("interfaces", State.GOOD, used or "one host: no network is used", SERVES)
