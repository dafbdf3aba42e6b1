"""What one host says about itself: cores this process may use, and network interfaces with their rates.

Standard library only: it also runs in the ranks, before anything else is imported there.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_SIOCGIFFLAGS = 0x8913
_SIOCGIFADDR = 0x8915
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8


@dataclass(frozen=True)
class Interface:
    """One network interface that is up: its addresses, and bits per second where the driver says them."""

    name: str
    addresses: tuple[str, ...]
    bits_per_s: float | None


@dataclass(frozen=True)
class HostFacts:
    """One host as a process on it sees it.

    ``affinity`` is the number of cores this process is bound to, ``cores`` all of the host; ``quota`` is what
    control groups grant in cores' worth of time, None without a limit.
    """

    name: str
    affinity: int
    cores: int
    quota: float | None
    interfaces: tuple[Interface, ...]

    @property
    def usable_cores(self) -> float:
        """Cores' worth of time that this process and its threads can get."""
        return float(self.affinity) if self.quota is None else min(float(self.affinity), self.quota)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> HostFacts:
        """The facts of `to_json`."""
        interfaces = tuple(
            Interface(row["name"], tuple(row["addresses"]), row["bits_per_s"]) for row in data["interfaces"]
        )
        return cls(data["name"], data["affinity"], data["cores"], data["quota"], interfaces)

    @classmethod
    def here(cls) -> HostFacts:
        """Of this host, for this process."""
        affinity = len(os.sched_getaffinity(0))
        name = os.environ.get("FASTHVD_HOST_ID") or socket.gethostname()
        return cls(name, affinity, os.cpu_count() or affinity, _quota(), tuple(_interfaces()))


def chosen_addresses(interfaces: tuple[Interface, ...], wanted: str) -> list[str]:
    """Addresses of the interfaces or networks that `wanted` names with commas, in its order; all when it is empty."""
    everything = [address for interface in interfaces for address in interface.addresses]
    if not wanted:
        return everything
    found: list[str] = []
    for word in wanted.split(","):
        found += [a for i in interfaces if i.name == word for a in i.addresses]
        with contextlib.suppress(ValueError):
            network = ipaddress.ip_network(word, strict=False)
            found += [address for address in everything if ipaddress.ip_address(address) in network]
    return list(dict.fromkeys(found))


def _interfaces() -> Iterator[Interface]:
    version6 = _version6_addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                flags = struct.unpack_from("H", fcntl.ioctl(asked, _SIOCGIFFLAGS, request), 16)[0]
            except OSError:
                continue
            if not flags & _IFF_UP or flags & _IFF_LOOPBACK:
                continue
            addresses = list(version6.get(name, ()))
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, request)
                addresses.insert(0, socket.inet_ntoa(answer[20:24]))
            if addresses:
                yield Interface(name, tuple(addresses), _rate(name))


def _version6_addresses() -> dict[str, list[str]]:
    """Addresses that other hosts can reach, by interface; link-local ones are left out."""
    found: dict[str, list[str]] = {}
    for line in _read("/proc/net/if_inet6").splitlines():
        digits, _, _, scope, _, name = line.split()
        if scope == "00":
            found.setdefault(name, []).append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    return found


def _rate(name: str) -> float | None:
    """Bits per second that the driver says; some say -1 or 0 for unknown."""
    text = _read(f"/sys/class/net/{name}/speed")
    return float(text) * 1e6 if text.isdigit() and int(text) > 0 else None


def _quota() -> float | None:
    """The tightest CPU limit of this process's control groups, in cores; version 1 and 2."""
    limits: list[float] = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = Path("/sys/fs/cgroup") if not controllers else Path("/sys/fs/cgroup/cpu")
        inside = base / path.lstrip("/")
        for group in (inside, *inside.parents):
            if not group.is_relative_to(base):
                break
            limit = _limit_version2(group) if not controllers else _limit_version1(group)
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _limit_version2(group: Path) -> float | None:
    quota, _, period = _read(str(group / "cpu.max")).partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _limit_version1(group: Path) -> float | None:
    quota, period = _read(str(group / "cpu.cfs_quota_us")), _read(str(group / "cpu.cfs_period_us"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
