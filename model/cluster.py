"""Where a job runs: hosts with cores and NICs, joined by switches and links, as a networkx graph.

Nodes have ``kind`` "host" or "switch"; a host node carries its `Host`. Each edge is one full-duplex link
with ``bits_per_s`` and ``latency_s`` for one direction; a host's edge is its NIC. One TCP connection gets at most the
cluster's ``flow_cap_bits_per_s``: the per-flow limit of a cloud or of a shaped lab.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from ..errors import UserError

Link = tuple[str, str]


@dataclass(frozen=True)
class Host:
    """One machine: ``cores`` usable by the job (fractions are CPU quotas), relative ``speed``, ranks on it."""

    name: str
    cores: float = 8.0
    speed: float = 1.0
    ranks: int = 1


@dataclass(frozen=True)
class Cluster:
    """Hosts and the network between them; see the module for the graph's attributes.

    A cluster is not changed once it is used: make another one.
    """

    graph: nx.Graph
    flow_cap_bits_per_s: float = math.inf

    @classmethod
    def star(
        cls,
        hosts: int = 2,
        ranks_per_host: int = 1,
        *,
        cores: float = 8.0,
        speed: float = 1.0,
        nic_bits_per_s: float = 10e9,
        flow_cap_bits_per_s: float = math.inf,
        latency_s: float = 50e-6,
    ) -> Cluster:
        """Equal hosts on one switch that is never the bottleneck; `latency_s` is one way, host to host."""
        _check("hosts", hosts, 1, 65536)
        _check("ranks per host", ranks_per_host, 1, 1024)
        _check("cores", cores, 1e-3, 4096)
        _check("core speed", speed, 1e-3, 1e3)
        _check("NIC rate in bit/s", nic_bits_per_s, 1e3, 1e14)
        _check("latency in s", latency_s, 0.0, 10.0)
        graph: nx.Graph = nx.Graph()
        graph.add_node("switch", kind="switch")
        for number in range(hosts):
            name = f"h{number}"
            graph.add_node(name, kind="host", host=Host(name, cores, speed, ranks_per_host))
            graph.add_edge(name, "switch", bits_per_s=float(nic_bits_per_s), latency_s=latency_s / 2)
        return cls(graph, flow_cap_bits_per_s).checked()

    def checked(self) -> Cluster:
        """Itself, when every host reaches every other; else raises UserError."""
        if not (self.flow_cap_bits_per_s > 0):
            raise UserError(f"flow cap is {self.flow_cap_bits_per_s} bit/s; it must be above 0")
        if not self.hosts:
            raise UserError("the cluster has no host; it needs at least 1")
        if not nx.is_connected(self.graph):
            raise UserError("the cluster's hosts do not all reach one another; add the missing links")
        return self

    @cached_property
    def hosts(self) -> list[Host]:
        """The hosts in the order of the ranks."""
        return [data["host"] for _, data in self.graph.nodes(data=True) if data["kind"] == "host"]

    @property
    def ranks(self) -> int:
        """Ranks of the whole job."""
        return sum(host.ranks for host in self.hosts)

    def nic_bits_per_s(self, host: str) -> float:
        """Rate of the host's link into the network, one direction."""
        return max(float(data["bits_per_s"]) for _, _, data in self.graph.edges(host, data=True))

    def with_link_rates(self, factor: float) -> Cluster:
        """The same with every link `factor` times as fast."""
        graph = self.graph.copy()
        for _, _, data in graph.edges(data=True):
            data["bits_per_s"] *= factor
        return Cluster(graph, self.flow_cap_bits_per_s)

    def path(self, source: str, target: str) -> list[Link]:
        """Directed links from one host to another along the shortest path."""
        nodes: list[str] = nx.shortest_path(self.graph, source, target)
        return list(itertools.pairwise(nodes))

    def latency_s(self, source: str, target: str) -> float:
        """One-way latency between two hosts in seconds."""
        return sum(float(self.graph.edges[link]["latency_s"]) for link in self.path(source, target))

    @cached_property
    def worst_latency_s(self) -> float:
        """The longest one-way latency between neighbours in rank order (a ring's round waits for it)."""
        hosts = [host.name for host in self.hosts]
        if len(hosts) == 1:
            return 0.0
        if self.is_uniform:
            return self.latency_s(hosts[0], hosts[1])
        return max(self.latency_s(a, b) for a, b in zip(hosts, hosts[1:] + hosts[:1], strict=True))

    @cached_property
    def is_uniform(self) -> bool:
        """True for equal hosts on one switch: one host then stands for all of them, exactly."""
        hosts = self.hosts
        same_host = len({dataclasses.replace(host, name="") for host in hosts}) == 1
        same_link = len({(d["bits_per_s"], d["latency_s"]) for _, _, d in self.graph.edges(data=True)}) <= 1
        return same_host and same_link and self.graph.number_of_nodes() == len(hosts) + 1

    def links(self) -> Iterable[tuple[Link, float]]:
        """Every link in each of its two directions, with its rate in bits/s."""
        for a, b, data in self.graph.edges(data=True):
            yield (a, b), float(data["bits_per_s"])
            yield (b, a), float(data["bits_per_s"])


def _check(what: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise UserError(f"{what} is {value:g}; it must lie between {low:g} and {high:g}")
