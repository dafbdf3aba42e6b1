"""Where a scenario runs: a lab and its ranks, and the same place as the model's `Cluster`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx

from ..errors import UserError
from ..model.calibration import Calibration
from ..model.cluster import Cluster, Host
from ..units import format_bits_per_s, parse_bits_per_s
from .lab import LabSpec


@dataclass(frozen=True)
class Place:
    """A lab and the number of ranks on each of its hosts.

    With `pinned` the hosts are dealt out over this machine's cores, and each runs on its own core only: an idle
    core of one host must not speed up another. `slow_lane_bits_per_s` is what the flows of the first host's first lane get.
    """

    name: str
    spec: LabSpec
    ranks: tuple[int, ...]
    pinned: bool
    slow_lane_bits_per_s: float | None = None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> Place:
        """The place of a suite's ``[place.NAME]``: the keys of a lab file, ``pin``, ``ranks``, ``slow_lane``. Raises UserError."""
        lab = {key: value for key, value in table.items() if key not in ("pin", "ranks", "slow_lane")}
        pinned = table.get("pin", True)
        if not isinstance(pinned, bool):
            raise UserError(f"[place.{name}]: pin must be true or false")
        try:
            spec = LabSpec.from_table(lab)
        except UserError as error:
            raise UserError(f"[place.{name}]: {error}") from None
        ranks = table.get("ranks", [1] * spec.hosts)
        if (
            not isinstance(ranks, list)
            or len(ranks) != spec.hosts
            or not all(type(count) is int and 1 <= count <= 64 for count in ranks)
            or sum(ranks) < 2
        ):
            raise UserError(
                f"[place.{name}]: ranks must be {spec.hosts} numbers from 1 to 64, 2 or more in all"
            )
        slow_lane = _slow_lane(name, table.get("slow_lane"), spec)
        return cls(name, _pinned(spec) if pinned else spec, tuple(ranks), pinned, slow_lane)

    @property
    def mpirun(self) -> list[str]:
        """The launcher and its options, as a user types them on h0."""
        slots = ",".join(f"{name}:{count}" for name, count in zip(self.spec.names, self.ranks, strict=True))
        return ["mpirun", "--bind-to", "none", "-np", str(sum(self.ranks)), "-H", slots]

    def host(self, number: int) -> Host:
        """Host `number` as the model sees it: its quota, or its share of the real cores it runs on."""
        spec = self.spec.host(self.spec.names[number])
        if spec.cores is not None:
            return Host(spec.name, cores=spec.cores, speed=spec.speed, ranks=self.ranks[number])
        return Host(spec.name, cores=self.spec.cores_of(spec.name), ranks=self.ranks[number])

    def nic_and_cap(self) -> tuple[float, float]:
        """NIC rate and per-flow cap in bit/s as configured; the least of all hosts."""
        hosts = [self.spec.host(name) for name in self.spec.names]
        caps = [host.flow_cap_bits_per_s or math.inf for host in hosts]
        return min(host.nic_bits_per_s for host in hosts), min(caps)

    def differs_from(self, other: Place) -> bool:
        """Another number of hosts or another network: a prediction from `other` has to carry over."""
        return (self.spec.hosts, *self.nic_and_cap()) != (other.spec.hosts, *other.nic_and_cap())

    def cluster(self, calibration: Calibration, calibrated_at: Place) -> Cluster:
        """This place for the model; rates that are those of `calibrated_at` keep their calibrated values."""
        hosts = [self.host(number) for number in range(self.spec.hosts)]
        nic, cap = self.nic_and_cap()
        nic_before, cap_before = calibrated_at.nic_and_cap()
        first = hosts[0]
        changes: dict[str, Any] = {"hosts": len(hosts), "cores": first.cores, "speed": first.speed}
        if nic != nic_before:
            changes["nic_bits_per_s"] = nic if math.isfinite(nic) else 100e9
        if cap != cap_before:
            changes["flow_cap_bits_per_s"] = cap
        star = calibration.cluster(**changes, ranks_per_host=first.ranks)
        if self.slow_lane_bits_per_s is not None:
            star = replace(star, lane_caps_bits_per_s=(self.slow_lane_bits_per_s,))
        alike = len({replace(host, name="") for host in hosts}) == 1 and self.spec.uniform_nic
        return star if alike else self._uneven(star, hosts)

    def _uneven(self, star: Cluster, hosts: list[Host]) -> Cluster:
        """`star` with what differs from host to host; NICs as configured, where they differ."""
        graph: nx.Graph = star.graph.copy()
        for host in hosts:
            graph.nodes[host.name]["host"] = host
            if not self.spec.uniform_nic:
                graph.edges[host.name, "switch"]["bits_per_s"] = self.spec.host(host.name).nic_bits_per_s
        return replace(star, graph=graph).checked()

    def describe(self) -> str:
        """One line about hosts, network and cores."""
        nic, cap = self.nic_and_cap()
        first = self.host(0)
        speed = f" at speed {first.speed:g}" if first.speed != 1 else ""
        said = [
            f"{self.spec.hosts} hosts",
            f"NIC {format_bits_per_s(nic)}",
            f"{format_bits_per_s(cap)} per flow" if math.isfinite(cap) else "no cap per flow",
            f"{first.cores:g} core{'' if first.cores == 1 else 's'}{speed} a host",
        ]
        if set(self.ranks) != {1}:
            said.append(f"ranks {', '.join(map(str, self.ranks))}")
        if self.slow_lane_bits_per_s is not None:
            said.append(f"the first lane {format_bits_per_s(self.slow_lane_bits_per_s)}")
        if any(set(table) - {"cpus"} for table in self.spec.overrides.values()):
            said.append("hosts differ")
        return ", ".join(said)


def _slow_lane(name: str, text: object, spec: LabSpec) -> float | None:
    if text is None:
        return None
    rate = parse_bits_per_s(str(text), what=f"[place.{name}]: slow_lane")
    cap = spec.host(spec.names[0]).flow_cap_bits_per_s
    if cap is None or not 1e3 <= rate < cap:
        raise UserError(
            f"[place.{name}]: slow_lane must be a rate below the place's flow_cap, like 500 Mbit/s"
        )
    return rate


def _pinned(spec: LabSpec) -> LabSpec:
    cores = sorted(os.sched_getaffinity(0))
    overrides = {
        name: {"cpus": (cores[number % len(cores)],), **spec.overrides.get(name, {})}
        for number, name in enumerate(spec.names)
    }
    return replace(spec, overrides=overrides)
