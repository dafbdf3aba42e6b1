"""The wires of a lab: one veth pair per host, a bridge in a network namespace of its own, and their rates.

Every interface is made inside the lab's namespaces, never in the machine's own, so nothing can collide with
another lab or be left behind: when the hosts' processes die, the kernel removes namespaces and wires.
"""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError
from . import shaping
from .spec import HostSpec

INTERFACE = "e0"
SUBNET = "10.77.0"


def address(number: int) -> str:
    """IPv4 address of host `number` (h0 is 0)."""
    return f"{SUBNET}.{number + 1}"


@dataclass(frozen=True)
class WireCount:
    """Bytes and packets that crossed a host's interface, as the interface counts them (Ethernet header included)."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int
    dropped_packets: int


class NamespaceLink:
    """Two route netlink sockets that live in one namespace: what is configured through them happens there."""

    def __init__(self, for_pyroute2: socket.socket, raw: socket.socket) -> None:
        from pyroute2 import IPRoute

        self.ip: Any = IPRoute(fileno=for_pyroute2.detach(), groups=0)
        self.raw = raw
        self.raw.settimeout(10)

    def index(self, interface: str) -> int:
        """The number of an interface; raises KeyError when there is none of that name."""
        found = self.ip.link_lookup(ifname=interface)
        if not found:
            raise KeyError(interface)
        return int(found[0])

    def close(self) -> None:
        """Give the sockets back."""
        self.ip.close()
        self.raw.close()


def explain(error: Exception, doing: str) -> UserError:
    """The kernel's refusal as one line that says what is missing."""
    code = getattr(error, "code", None) or getattr(error, "errno", None)
    if code in (errno.EPERM, errno.EACCES):
        return UserError(f"lab: {doing} is not permitted: CAP_NET_ADMIN is missing; run as root")
    if code in (errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTSUP):
        return UserError(
            f"lab: {doing} is not supported by this kernel ({error}); it needs veth, bridge, sch_htb and cls_bpf "
            "(modprobe veth bridge sch_htb cls_bpf, or linux-modules-extra)"
        )
    return UserError(f"lab: {doing} failed: {error}")


def make_bridge(switch: NamespaceLink) -> None:
    """The switch's bridge, forwarding from its first packet on."""
    switch.ip.link("add", ifname="br0", kind="bridge", br_forward_delay=0, br_stp_state=0)
    switch.ip.link("set", index=switch.index("br0"), state="up")


def wire(number: int, switch: NamespaceLink, inside: NamespaceLink, pid: int) -> None:
    """Join host `number` to the switch and give it its address. `pid` is any process in the host."""
    port = f"p{number}"
    switch.ip.link("add", ifname=port, kind="veth", peer={"ifname": INTERFACE, "net_ns_pid": pid})
    switch.ip.link("set", index=switch.index(port), master=switch.index("br0"), state="up")
    inside.ip.link("set", index=inside.index("lo"), state="up")
    e0 = inside.index(INTERFACE)
    inside.ip.link("set", index=e0, state="up")
    inside.ip.addr("add", index=e0, address=address(number), prefixlen=24)


def shape(
    number: int, host: HostSpec, switch: NamespaceLink, inside: NamespaceLink, limit_arrivals: bool
) -> None:
    """Put the host's NIC rate and flow cap on what it sends, and with `limit_arrivals` the rate on what it receives."""
    if math.isfinite(host.nic_bits_per_s):
        shaping.limit_sending(inside, inside.index(INTERFACE), host.nic_bits_per_s, host.flow_cap_bits_per_s)
        if limit_arrivals:
            shaping.limit_sending(switch, switch.index(f"p{number}"), host.nic_bits_per_s, None)
    elif host.flow_cap_bits_per_s is not None:
        shaping.limit_sending(
            inside, inside.index(INTERFACE), shaping.FASTEST_BITS_PER_S, host.flow_cap_bits_per_s
        )


def count(pid: int) -> WireCount:
    """What has crossed the interface of the host in which process `pid` lives, so far."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == INTERFACE:
            field = [int(number) for number in numbers.split()]
            return WireCount(field[8], field[0], field[9], field[1], field[3] + field[11])
    raise KeyError(INTERFACE)


def attempt(doing: str, action: Callable[[], None]) -> None:
    """Do `action`; a refusal of the kernel becomes a UserError that says what was being done."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        action()
    except (NetlinkError, OSError) as error:
        raise explain(error, doing) from None
