"""What a lab looks like: hosts, NIC rates, per-flow caps, cores, clocks; from Python or from a TOML file.

A file names only what differs from the defaults::

    hosts = 2
    nic = "4 Gbit/s"
    flow_cap = "1 Gbit/s"

    [host.h1]
    cores = 1
    speed = 0.5
    clock_offset = "1000 s"
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...units import format_bits_per_s, parse_bits_per_s, parse_seconds

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_HOSTS = 64
UNLIMITED = math.inf


@dataclass(frozen=True)
class HostSpec:
    """One host of a lab.

    `cores` None means no quota: the host shares the real cores with the others. `speed` is the share of a
    real core's time that one emulated core gets. `cpus` pins the host to real cores.
    """

    name: str
    nic_bits_per_s: float
    flow_cap_bits_per_s: float | None = None
    cores: float | None = None
    speed: float = 1.0
    clock_offset_s: float = 0.0
    cpus: tuple[int, ...] | None = None

    @property
    def quota_cores(self) -> float | None:
        """Real cores' worth of CPU time the host may use per second, or None without a quota."""
        if self.cores is None:
            return None
        return self.cores * self.speed


@dataclass(frozen=True)
class LabSpec:
    """A whole lab: `hosts` equal hosts named h0, h1, ..., and per host what differs.

    With `rack_hosts` each so many hosts, in order, hang on a switch of their own, and each of these switches on
    one above them by a link of `uplink_bits_per_s` each way. Without, all hosts hang on one switch.

    Rates are bits per second on the Ethernet wire (TCP payload is 95.6 % of that); ``math.inf`` is an
    unshaped NIC, None no per-flow cap.
    """

    hosts: int = 2
    nic_bits_per_s: float = 4e9
    flow_cap_bits_per_s: float | None = None
    cores: float | None = None
    speed: float = 1.0
    cpus: tuple[int, ...] | None = None
    clock_offset_s: float = 0.0
    rack_hosts: int | None = None
    uplink_bits_per_s: float = UNLIMITED
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range("hosts", self.hosts, 1, MAX_HOSTS, whole=True)
        if self.rack_hosts is not None:
            _check_range("rack_hosts", self.rack_hosts, 1, MAX_HOSTS, whole=True)
            _check_rate("uplink", self.uplink_bits_per_s)
        elif self.uplink_bits_per_s != UNLIMITED:
            raise UserError("lab: uplink needs rack_hosts too, like rack_hosts = 2")
        for name in self.overrides:
            if name not in self.names:
                raise UserError(f"lab: there is no host '{name}'; the hosts are {', '.join(self.names)}")
        for name in self.names:
            _check_host(self.host(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The host names, h0 first."""
        return tuple(f"h{number}" for number in range(self.hosts))

    def host(self, name: str) -> HostSpec:
        """What is true of the host `name`, with its own table applied."""
        facts: dict[str, Any] = {
            "nic_bits_per_s": self.nic_bits_per_s,
            "flow_cap_bits_per_s": self.flow_cap_bits_per_s,
            "cores": self.cores,
            "speed": self.speed,
            "cpus": self.cpus,
            "clock_offset_s": self.clock_offset_s,
        }
        return HostSpec(name=name, **{**facts, **self.overrides.get(name, {})})

    @property
    def uniform_nic(self) -> bool:
        """Whether all NICs have the same rate."""
        return len({self.host(name).nic_bits_per_s for name in self.names}) == 1

    @property
    def cores_per_host(self) -> float:
        """Cores of the slowest host in real cores' worth: its quota, else an equal share of the real ones."""
        return min(self.cores_of(name) for name in self.names)

    def cores_of(self, name: str) -> float:
        """Cores of one host in real cores' worth: its quota, else its share of the real ones."""
        host = self.host(name)
        quota = host.quota_cores
        if quota is not None:
            return quota
        if host.cpus:  # hosts that are pinned to the same core share it
            pinned = [self.host(other).cpus or () for other in self.names]
            return sum(1 / sum(cpu in cpus for cpus in pinned) for cpu in host.cpus)
        return (os.cpu_count() or 1) / self.hosts

    @property
    def trustworthy(self) -> bool:
        """Whether the emulated cores fit on the real ones; if not, hosts steal time from each other."""
        return sum(self.cores_of(name) for name in self.names) <= (os.cpu_count() or 1) + 1e-9

    def limits(self) -> list[str]:
        """What figures from this lab cannot show, one sentence each, to be printed with every figure."""
        real = os.cpu_count() or 1
        said = [
            f"{self.hosts} hosts are emulated on one machine with {real} cores; "
            "the receiver's TCP work is charged to the sender (veth).",
        ]
        hosts = [self.host(name) for name in self.names]
        if self._own_cores:
            said.append(
                "Each host has real cores of its own, shared with the kernel's network work for both ends."
            )
        elif any(host.cores is None for host in hosts):
            said.append(
                "Hosts without a CPU quota share the real cores: one host's idle core speeds up another."
            )
        if any(host.cores is not None for host in hosts):
            said.append(
                "A CPU quota is a throttle, not a slow core: short bursts run at full speed (throttle emulation)."
            )
        if any(math.isfinite(self.host(name).nic_bits_per_s) for name in self.names):
            said.append(
                "Links have no propagation delay and lose no packets; queues are HTB's, not a switch's."
            )
        if not self.trustworthy:
            asked = sum(self.cores_of(name) for name in self.names)
            said.append(
                f"UNTRUSTWORTHY: {asked:g} emulated cores on {real} real ones; hosts steal time from each other."
            )
        return said

    def describe(self) -> str:
        """One line: ``2 hosts, NIC 4 Gbit/s, 1 Gbit/s per flow``."""
        said = [f"{self.hosts} hosts", f"NIC {format_bits_per_s(self.nic_bits_per_s)}"]
        if self.flow_cap_bits_per_s is not None:
            said.append(f"{format_bits_per_s(self.flow_cap_bits_per_s)} per flow")
        if self.rack_hosts is not None:
            said.append(
                f"racks of {self.rack_hosts} with uplinks of {format_bits_per_s(self.uplink_bits_per_s)}"
            )
        if self.cores is not None:
            plural = "" if self.cores == 1 else "s"
            said.append(f"{self.cores:g} core{plural} at speed {self.speed:g} per host")
        if self._own_cores:
            count = len(self.host(self.names[0]).cpus or ())
            said.append(f"{count} real core{'' if count == 1 else 's'} per host")
        different = sorted(name for name, table in self.overrides.items() if set(table) - {"cpus"})
        if different:
            said.append(f"{', '.join(different)} different")
        return ", ".join(said)

    @property
    def _own_cores(self) -> bool:
        """Whether every host has real cores that no other host has."""
        owned = [cpu for name in self.names for cpu in self.host(name).cpus or ()]
        return len(owned) == len(set(owned)) and all(self.host(name).cpus for name in self.names)

    @classmethod
    def from_toml(cls, path: str | Path) -> LabSpec:
        """The lab that the TOML file `path` describes.

        Raises UserError for a missing or unreadable file, an unknown key, a value out of range.
        """
        place = Path(path)
        try:
            text = place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UserError(
                f"cannot read lab file {place}: {reason}; see examples/lab-two-hosts.toml"
            ) from None
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"lab file {place} is not valid TOML: {error}") from None
        try:
            return cls.from_table(table)
        except UserError as error:
            raise UserError(f"{place}: {error}") from None

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> LabSpec:
        """The lab that a parsed TOML table describes; raises UserError as `from_toml` does."""
        _refuse_unknown(table, ("hosts", *_HOST_KEYS, "rack_hosts", "uplink", "host"), "lab")
        facts: dict[str, Any] = {}
        if "hosts" in table:
            facts["hosts"] = _check_range("hosts", table["hosts"], 1, MAX_HOSTS, whole=True)
        facts.update(_host_facts(table, "lab"))
        if "rack_hosts" in table:
            facts["rack_hosts"] = _check_range("rack_hosts", table["rack_hosts"], 1, MAX_HOSTS, whole=True)
        if "uplink" in table:
            facts["uplink_bits_per_s"] = _rate(table["uplink"], "lab: uplink", UNLIMITED)
        tables = table.get("host", {})
        if not isinstance(tables, Mapping) or not all(
            isinstance(entry, Mapping) for entry in tables.values()
        ):
            raise UserError("lab: 'host' must be tables, one per host, like [host.h1]")
        overrides = {}
        for name, entry in tables.items():
            _refuse_unknown(entry, _HOST_KEYS, f"[host.{name}]")
            overrides[name] = _host_facts(entry, f"[host.{name}]")
        return cls(**facts, overrides=overrides)


_HOST_KEYS = ("nic", "flow_cap", "cores", "speed", "cpus", "clock_offset")


def _refuse_unknown(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise UserError(f"{where}: unknown key '{key}'; allowed are {', '.join(allowed)}")


def _host_facts(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The keys of one host, or of all hosts, as arguments of HostSpec."""
    facts: dict[str, Any] = {}
    if "nic" in table:
        facts["nic_bits_per_s"] = _rate(table["nic"], f"{where}: nic", UNLIMITED)
    if "flow_cap" in table:
        cap = _rate(table["flow_cap"], f"{where}: flow_cap", UNLIMITED)
        facts["flow_cap_bits_per_s"] = cap if math.isfinite(cap) else None
    for key in ("cores", "speed"):
        if key in table:
            facts[key] = _number(table[key], f"{where}: {key}")
    if "cpus" in table:
        cpus = table["cpus"]
        if not isinstance(cpus, list) or not cpus or not all(type(cpu) is int and cpu >= 0 for cpu in cpus):
            raise UserError(f"{where}: cpus must be a list of core numbers, like [0, 1]")
        facts["cpus"] = tuple(sorted(set(cpus)))
    if "clock_offset" in table:
        facts["clock_offset_s"] = _seconds(table["clock_offset"], f"{where}: clock_offset")
    return facts


def _rate(value: object, what: str, unlimited: float) -> float:
    if value == "unlimited":
        return unlimited
    if not isinstance(value, str):
        raise UserError(f'{what} must be text with its unit, like "4 Gbit/s", or "unlimited"')
    return parse_bits_per_s(value, what=what)


def _seconds(value: object, what: str) -> float:
    if not isinstance(value, str):
        raise UserError(f'{what} must be text with its unit, like "1000 s"')
    return parse_seconds(value, what=what)


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{what} must be a number, got {value!r}")
    return float(value)


def _check_range(what: str, value: object, low: float, high: float, *, whole: bool = False) -> int | float:
    number = _number(value, f"lab: {what}")
    if whole and number != int(number):
        raise UserError(f"lab: {what} must be a whole number, got {value!r}")
    if not low <= number <= high:
        raise UserError(f"lab: {what} must be between {low:g} and {high:g}, got {value!r}")
    return int(number) if whole else number


def _check_rate(what: str, bits_per_s: float) -> None:
    if bits_per_s != UNLIMITED:
        _check_range(f"{what} in bit/s", bits_per_s, 1e6, 400e9)


def _check_host(host: HostSpec) -> None:
    _check_rate(f"nic of {host.name}", host.nic_bits_per_s)
    if host.flow_cap_bits_per_s is not None:
        _check_range(f"flow_cap of {host.name} in bit/s", host.flow_cap_bits_per_s, 1e6, 400e9)
        if host.flow_cap_bits_per_s > host.nic_bits_per_s:
            raise UserError(f"lab: flow_cap of {host.name} is above its nic; lower it or leave it out")
    if host.cores is not None:
        _check_range(f"cores of {host.name}", host.cores, 0.05, 1024)
    _check_range(f"speed of {host.name}", host.speed, 0.05, 1)
    if host.speed != 1 and host.cores is None:
        raise UserError(f"lab: speed of {host.name} needs cores too, like cores = 1")
    _check_range(f"clock_offset of {host.name} in s", host.clock_offset_s, -1e9, 1e9)
    missing = set(host.cpus or ()) - os.sched_getaffinity(0)
    if missing:
        raise UserError(
            f"lab: cpus of {host.name}: core {min(missing)} is not on this machine or not allowed"
        )
