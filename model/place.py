"""Where a traced run took place: hosts, ranks on each, usable cores of each."""

from __future__ import annotations

from dataclasses import dataclass

from ..tracer.trace import Trace
from .cluster import Cluster
from .probe import LaneProbe
from .sites import Sites


@dataclass(frozen=True)
class Place:
    """Where the data come from: hosts, ranks on each, usable cores of each, one-way latency in s."""

    hosts: int
    ranks_per_host: int
    cores: float
    latency_s: float

    @property
    def ranks(self) -> int:
        """Ranks of the job."""
        return self.hosts * self.ranks_per_host

    @property
    def sites(self) -> Sites:
        """Its cores; the network is not known yet."""
        return Sites.of(Cluster.star(self.hosts, self.ranks_per_host, cores=self.cores), 1.0)


def hosts_and_ranks(trace: Trace, probe: LaneProbe | None) -> tuple[int, int]:
    """Hosts, and ranks on each: the trace's, else the probe's, else a host for every rank."""
    if trace.meta.hosts:
        hosts = len(trace.meta.hosts)
        return hosts, max(1, (trace.meta.ranks or hosts) // hosts)
    if probe is not None:
        return probe.hosts, probe.ranks_per_host
    return max(1, trace.meta.ranks or 1), 1


def cores_of(trace: Trace) -> float:
    """Cores of the poorest host; hosts that are containers of one machine share its cores."""
    hosts = trace.meta.hosts
    sharing = {
        host.machine: sum(other.machine == host.machine for other in hosts) for host in hosts if host.machine
    }
    counts = [host.cores / sharing.get(host.machine or "", 1) for host in hosts if host.cores]
    return float(min(counts)) if counts else 8.0
