"""The resources of a cluster as the simulator sees them: cores and directed links of the hosts it must simulate.

Equal hosts on one switch all do the same at the same time, so one of them is simulated and stands for all:
what it sends another receives, and it receives as much itself. Other clusters are simulated host by host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .cluster import Cluster, Host


def cpu_of(host: str) -> str:
    """Name of a host's cores as a resource; its unit is core seconds."""
    return f"cpu:{host}"


def memory_of(host: str) -> str:
    """Name of a host's memory bus as a resource; its unit is bytes read or written."""
    return f"memory:{host}"


def link_name(source: str, target: str) -> str:
    """Name of one direction of a link as a resource; its unit is payload bytes."""
    return f"link:{source}>{target}"


@dataclass(frozen=True)
class Sites:
    """Simulated hosts, capacities of their resources, and the bytes that transfers put on links."""

    cluster: Cluster
    hosts: tuple[Host, ...]
    capacity: dict[str, float]
    flow_bytes_per_s: float
    wire_efficiency: float

    @classmethod
    def of(cls, cluster: Cluster, wire_efficiency: float) -> Sites:
        """Sites of `cluster`; payload gets `wire_efficiency` of each link's rate."""
        uniform = cluster.is_uniform
        hosts = tuple(cluster.hosts[:1] if uniform else cluster.hosts)
        shown = {host.name for host in hosts}
        capacity = {cpu_of(host.name): host.cores for host in hosts}
        for (source, target), rate in cluster.links():
            if not uniform or source in shown or target in shown:
                capacity[link_name(source, target)] = rate / 8 * wire_efficiency
        limited = [host for host in hosts if math.isfinite(host.memory_bytes_per_s)]
        capacity.update({memory_of(host.name): host.memory_bytes_per_s for host in limited})
        return cls(cluster, hosts, capacity, cluster.flow_bytes_per_s(wire_efficiency), wire_efficiency)

    def with_parts_of_cores_worth(self, factor: float, part: float) -> Sites:
        """The same where a core second does only `factor` of its work on hosts with less than `part` of a core."""
        cores = {cpu_of(host.name) for host in self.hosts if host.cores * host.speed < part}
        capacity = {name: rate * factor if name in cores else rate for name, rate in self.capacity.items()}
        return replace(self, capacity=capacity)

    def lane_bytes_per_s(self, lane: int) -> float:
        """Payload rate of the connections of one lane, which may be slower than others."""
        return min(self.flow_bytes_per_s, self.cluster.lane_cap_bits_per_s(lane) / 8 * self.wire_efficiency)

    @property
    def host_count(self) -> int:
        """Hosts of the cluster, simulated or stood for."""
        return len(self.cluster.hosts)

    @property
    def is_representative(self) -> bool:
        """True when one simulated host stands for several."""
        return len(self.hosts) < self.host_count

    def neighbours(self, distance: int) -> list[tuple[str, str]]:
        """Pairs (sender, receiver) of hosts `distance` apart: 0 for the ring, else partners by exclusive or."""
        names = [host.name for host in self.cluster.hosts]
        count = len(names)
        if distance == 0:
            return [(names[i], names[(i + 1) % count]) for i in range(count)]
        return [(names[i], names[i ^ distance]) for i in range(count) if i ^ distance < count]

    def transfer_needs(self, distance: int = 0) -> dict[str, float]:
        """Bytes on each link when every host sends one byte to its neighbour at `distance`."""
        if self.host_count == 1:
            return {}
        if self.is_representative:
            name = self.hosts[0].name
            return {n: 1.0 for n in self.capacity if n.startswith("link:") and name in n[5:].split(">")}
        needs: dict[str, float] = {}
        for source, target in self.neighbours(distance):
            for link in self.cluster.path(source, target):
                name = link_name(*link)
                needs[name] = needs.get(name, 0.0) + 1.0
        return needs

    def cpu_needs(self, core_s: float, threads_per_rank: float = 1.0) -> dict[str, float]:
        """`core_s` core seconds for each rank of every simulated host."""
        return {cpu_of(h.name): core_s * h.ranks * threads_per_rank / h.speed for h in self.hosts}

    def memory_needs(self, nbytes: float) -> dict[str, float]:
        """`nbytes` read or written for each rank of every simulated host whose memory has a limit."""
        return {
            memory_of(h.name): nbytes * h.ranks for h in self.hosts if math.isfinite(h.memory_bytes_per_s)
        }

    def saturated_by(self, threads_per_rank: float) -> bool:
        """Do that many busy threads a rank leave no core idle on some host?"""
        return any(threads_per_rank * host.ranks > host.cores - 0.5 for host in self.hosts)

    def turns_before(self, threads_per_rank: float) -> float:
        """Turns of other threads that Horovod's thread waits for when it wakes, on the most crowded host; one is ``busy_wait_s``.

        A core that several ranks share is also shared by the Horovod threads of the others. Of a slower core a turn
        lasts longer. 0 where a core is idle.
        """
        if not self.saturated_by(threads_per_rank):
            return 0.0
        return max(
            max(1.0, (threads_per_rank + 1) * host.ranks / host.cores - 1) / host.speed for host in self.hosts
        )

    @property
    def slowest(self) -> float:
        """Speed of the slowest simulated core."""
        return min(host.speed for host in self.hosts)


def merged(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """Needs added up."""
    total: dict[str, float] = {}
    for part in parts:
        for name, need in part.items():
            total[name] = total.get(name, 0.0) + need
    return total


def thread_bound(core_s_per_unit: float, speed: float, threads: int = 1) -> float:
    """Units per second that `threads` threads reach at most: each has one core."""
    return math.inf if core_s_per_unit <= 0 else threads * speed / core_s_per_unit
