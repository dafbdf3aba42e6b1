"""Where a job runs: hosts with cores and NICs, joined by switches and links, as a networkx graph.

Nodes have ``kind`` "host" or "switch"; a host node carries its `Host`. Each edge is one full-duplex link
with ``bits_per_s`` and ``latency_s`` for one direction, and where others use it ``background_bits_per_s``; a
host's edge is its NIC. One TCP connection gets at most the cluster's ``flow_cap_bits_per_s`` (the per-flow limit
of a cloud or of a shaped lab), its window per round trip, and what its packet loss allows.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx

from ..errors import UserError

Link = tuple[str, str]

DEFAULT_WINDOW_BYTES = 3e6
"""Bytes in flight of one TCP connection: half of Linux's largest receive buffer (tcp_rmem, 6 MiB)."""
_MSS_BYTES = 1448
_LEAST_LEFT = 0.01


@dataclass(frozen=True)
class Host:
    """One machine: ``cores`` usable by the job (fractions are CPU quotas), relative ``speed``, ranks on it.

    ``memory_bytes_per_s`` is what all its cores together read and write at most.
    """

    name: str
    cores: float = 8.0
    speed: float = 1.0
    ranks: int = 1
    memory_bytes_per_s: float = math.inf


@dataclass(frozen=True)
class Cluster:
    """Hosts and the network between them; see the module for the graph's attributes.

    A cluster is not changed once it is used: make another one. ``lane_caps_bits_per_s`` are for the flows of the first
    lanes where those are slower than the rest: a path that is shared with others.
    """

    graph: nx.Graph
    flow_cap_bits_per_s: float = math.inf
    window_bytes: float = DEFAULT_WINDOW_BYTES
    loss: float = 0.0
    lane_caps_bits_per_s: tuple[float, ...] = ()

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
        memory_bytes_per_s: float = math.inf,
        window_bytes: float = DEFAULT_WINDOW_BYTES,
        loss: float = 0.0,
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
            graph.add_node(
                name, kind="host", host=Host(name, cores, speed, ranks_per_host, memory_bytes_per_s)
            )
            graph.add_edge(name, "switch", bits_per_s=float(nic_bits_per_s), latency_s=latency_s / 2)
        return cls(graph, flow_cap_bits_per_s, window_bytes, loss).checked()

    @classmethod
    def two_tier(
        cls,
        hosts: int,
        hosts_per_rack: int,
        oversubscription: float,
        *,
        nic_bits_per_s: float = 10e9,
        **star: Any,
    ) -> Cluster:
        """Racks of equal hosts whose uplink carries `oversubscription` times less than their NICs together.

        Further arguments are those of `star`.
        """
        _check("hosts per rack", hosts_per_rack, 1, 65536)
        _check("oversubscription", oversubscription, 1.0, 1e4)
        flat = cls.star(hosts, nic_bits_per_s=nic_bits_per_s, **star)
        graph = flat.graph.copy()
        uplink = nic_bits_per_s * hosts_per_rack / oversubscription
        for number in range(hosts):
            name, rack = f"h{number}", f"rack{number // hosts_per_rack}"
            link = graph.edges[name, "switch"]
            graph.remove_edge(name, "switch")
            graph.add_node(rack, kind="switch")
            graph.add_edge(name, rack, **link)
            graph.add_edge(rack, "switch", bits_per_s=uplink, latency_s=link["latency_s"])
        return dataclasses.replace(flat, graph=graph).checked()

    def checked(self) -> Cluster:
        """Itself, when every host reaches every other; else raises UserError."""
        if not (self.flow_cap_bits_per_s > 0):
            raise UserError(f"flow cap is {self.flow_cap_bits_per_s} bit/s; it must be above 0")
        if not all(cap > 0 for cap in self.lane_caps_bits_per_s):
            raise UserError(f"lane caps are {self.lane_caps_bits_per_s} bit/s; each must be above 0")
        if not self.window_bytes > 0:
            raise UserError(f"TCP window is {self.window_bytes} bytes; it must be above 0")
        if not 0 <= self.loss < 1:
            raise UserError(f"packet loss is {self.loss}; it must be a share from 0 to below 1")
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
        return dataclasses.replace(self, graph=graph)

    def flow_bytes_per_s(self, wire_efficiency: float) -> float:
        """Payload rate of one TCP connection that has the path to itself.

        The least of the cap, the window per round trip, and Mathis' law for random loss,
        1.22 MSS / (RTT sqrt(p)) (reference 8.5).
        """
        limits = [self.flow_cap_bits_per_s / 8 * wire_efficiency]
        round_trip_s = 2 * self.worst_latency_s
        if round_trip_s > 0:
            limits.append(self.window_bytes / round_trip_s)
            if self.loss > 0:
                limits.append(1.22 * _MSS_BYTES / (round_trip_s * math.sqrt(self.loss)))
        return min(limits)

    def lane_cap_bits_per_s(self, lane: int) -> float:
        """The cap of the flows of one lane."""
        slow = self.lane_caps_bits_per_s
        return min(self.flow_cap_bits_per_s, slow[lane] if lane < len(slow) else math.inf)

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
        keys = ("bits_per_s", "latency_s", "background_bits_per_s")
        same_link = (
            len({tuple(d.get(key, 0.0) for key in keys) for _, _, d in self.graph.edges(data=True)}) <= 1
        )
        return same_host and same_link and self.graph.number_of_nodes() == len(hosts) + 1

    def links(self) -> Iterable[tuple[Link, float]]:
        """Every link in each of its two directions, with the bits/s that background traffic leaves."""
        for a, b, data in self.graph.edges(data=True):
            rate = float(data["bits_per_s"])
            free = max(_LEAST_LEFT * rate, rate - float(data.get("background_bits_per_s", 0.0)))
            yield (a, b), free
            yield (b, a), free


def _check(what: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise UserError(f"{what} is {value:g}; it must lie between {low:g} and {high:g}")
