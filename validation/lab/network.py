"""The wires of a lab: one veth pair per host, a bridge in a network namespace of its own, and their rates.

Every interface is made inside the lab's namespaces, never in the machine's own, so nothing can collide with
another lab or be left behind: when the hosts' processes die, the kernel removes namespaces and wires.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UserError
from . import shaping
from .requests import request
from .spec import LabSpec

INTERFACE = "e0"
SUBNET = "10.77.0"
# Slower, and HTB's debt for one large packet would outlast the next change of the rate.
SLOWEST_BITS_PER_S = 1e6

_RTM_NEWLINK = 16
_IFF_UP = 1


def address(number: int) -> str:
    """IPv4 address of host `number` (h0 is 0)."""
    return f"{SUBNET}.{number + 1}"


@dataclass(frozen=True)
class WireCount:
    """Bytes and packets that crossed a host's interface, as the interface counts them.

    Ethernet, IP and TCP headers are included, but once for all segments that TCP handed down together (GSO):
    the sum is payload plus well under 1 %.
    """

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int
    dropped_packets: int


@dataclass(frozen=True)
class NamespaceLink:
    """Two route netlink sockets that live in one namespace: what is configured through them happens there."""

    for_pyroute2: socket.socket
    raw: socket.socket

    def close(self) -> None:
        """Give the sockets back."""
        self.for_pyroute2.close()
        self.raw.close()


@dataclass
class Wire:
    """The wire of one host, from its interface to the switch's port; may be changed while traffic flows.

    `nic_bits_per_s` and `flow_cap_bits_per_s` are what holds now; `limit_arrivals` says whether the NIC rate
    also holds for what the host receives.
    """

    inside: socket.socket
    switch: socket.socket
    interface: int
    port: int
    limit_arrivals: bool
    nic_bits_per_s: float = math.inf
    flow_cap_bits_per_s: float | None = None
    _shaped: set[int] = field(default_factory=set)
    _classes: bool = False
    _own_rates: dict[int, float] = field(default_factory=dict)

    def set_nic(self, bits_per_s: float) -> None:
        """Give the NIC another rate; ``math.inf`` is as fast as the machine is."""
        _check_slowest(bits_per_s)
        with _explained("changing a NIC's rate"):
            if self._shaped or math.isfinite(bits_per_s):
                self._limit(min(bits_per_s, shaping.FASTEST_BITS_PER_S))
            self.nic_bits_per_s = bits_per_s

    def set_flow_cap(self, bits_per_s: float | None) -> None:
        """Give each flow that the host sends another cap; None is none but the NIC."""
        with _explained("changing the flow cap"):
            if self.flow_cap_bits_per_s is not None and bits_per_s is None:
                shaping.drop_filter(self.inside, self.interface)
            elif bits_per_s is not None:
                _check_slowest(bits_per_s)
                self._cap(bits_per_s)
            self.flow_cap_bits_per_s = bits_per_s
            self._own_rates.clear()

    def _cap(self, bits_per_s: float) -> None:
        nic = min(self.nic_bits_per_s, shaping.FASTEST_BITS_PER_S)
        if not self._shaped:
            self._limit(nic)
        shaping.set_flow_caps(self.inside, self.interface, nic, bits_per_s, new=not self._classes)
        self._classes = True
        if self.flow_cap_bits_per_s is None:
            shaping.add_filter(self.inside, self.interface)

    def _limit(self, nic_bits_per_s: float) -> None:
        ends = [(self.inside, self.interface), (self.switch, self.port)]
        for end, (sock, index) in enumerate(ends if self.limit_arrivals else ends[:1]):
            if end in self._shaped:
                shaping.set_nic(sock, index, nic_bits_per_s, new=False)
            else:
                shaping.limit_nic(sock, index, nic_bits_per_s)
            self._shaped.add(end)

    def set_flow_rate(self, flow_class: int, bits_per_s: float) -> None:
        """Give the flows of one class a cap of their own; needs a flow cap on the wire. Raises UserError."""
        if not 1 <= bits_per_s <= shaping.FASTEST_BITS_PER_S:
            raise UserError(f"lab: a flow's rate must be between 1 and 4e11 bit/s, got {bits_per_s:g}")
        if self.flow_cap_bits_per_s is None:
            raise UserError("lab: to slow one flow the host needs a flow_cap; give it one")
        with _explained("slowing a flow"):
            nic = min(self.nic_bits_per_s, shaping.FASTEST_BITS_PER_S)
            faster = bits_per_s > self._own_rates.get(flow_class, self.flow_cap_bits_per_s)
            shaping.set_one_flow_cap(self.inside, self.interface, nic, bits_per_s, flow_class, renew=faster)
            self._own_rates[flow_class] = bits_per_s

    def pull(self) -> None:
        """Pull the cable: nothing passes, and neither end is told."""
        self._set_port(0)

    def plug(self) -> None:
        """Put the cable back."""
        self._set_port(_IFF_UP)

    def _set_port(self, flags: int) -> None:
        body = struct.pack("BBHiII", 0, 0, 0, self.port, flags, _IFF_UP)
        with _explained("setting a link"):
            request(self.switch, [(_RTM_NEWLINK, 0, body)])


def make_switches(switch: NamespaceLink, spec: LabSpec) -> None:
    """The bridges that hosts hang on, forwarding from their first packet on. Raises UserError."""
    from pyroute2 import IPRoute

    with _explained("making a bridge"), IPRoute(fileno=_copy(switch), groups=0) as ip:
        names = [bridge_name(number, spec) for number in range(spec.hosts)]
        racks = list(dict.fromkeys(names))
        for name in racks if len(racks) == 1 else [*racks, "core"]:
            ip.link("add", ifname=name, kind="bridge", br_forward_delay=0, br_stp_state=0)
            ip.link("set", index=ip.link_lookup(ifname=name)[0], state="up")
        for number, rack in enumerate(racks if len(racks) > 1 else []):
            ends = {f"u{number}": rack, f"d{number}": "core"}
            up, down = ends
            ip.link("add", ifname=up, kind="veth", peer=down)
            for end, bridge in ends.items():
                index = ip.link_lookup(ifname=end)[0]
                ip.link("set", index=index, master=ip.link_lookup(ifname=bridge)[0], state="up")
                if math.isfinite(spec.uplink_bits_per_s):
                    shaping.limit_nic(switch.raw, index, spec.uplink_bits_per_s)


def bridge_name(number: int, spec: LabSpec) -> str:
    """The bridge that host `number` hangs on."""
    return f"rack{number // (spec.rack_hosts or spec.hosts)}"


def join(number: int, spec: LabSpec, switch: NamespaceLink, inside: NamespaceLink, pid: int) -> Wire:
    """Join host `number` to the switch, give it its address and its rates. `pid` is any process in the host.

    Raises UserError with what the kernel refused.
    """
    from pyroute2 import IPRoute

    host = spec.host(spec.names[number])
    port_name = f"p{number}"
    with (
        _explained(f"wiring {host.name}"),
        IPRoute(fileno=_copy(switch), groups=0) as outer,
        IPRoute(fileno=_copy(inside), groups=0) as inner,
    ):
        outer.link("add", ifname=port_name, kind="veth", peer={"ifname": INTERFACE, "net_ns_pid": pid})
        port = outer.link_lookup(ifname=port_name)[0]
        outer.link(
            "set", index=port, master=outer.link_lookup(ifname=bridge_name(number, spec))[0], state="up"
        )
        interface = inner.link_lookup(ifname=INTERFACE)[0]
        for index in (inner.link_lookup(ifname="lo")[0], interface):
            inner.link("set", index=index, state="up")
        inner.addr("add", index=interface, address=address(number), prefixlen=24)
    # Of two equal NICs the sender's limits both; where many can send to one, or to a slower one, its own must too.
    limit_arrivals = spec.hosts > 2 or not spec.uniform_nic
    wire = Wire(inside.raw, switch.raw, interface, port, limit_arrivals)
    wire.set_nic(host.nic_bits_per_s)
    wire.set_flow_cap(host.flow_cap_bits_per_s)
    return wire


def count(pid: int) -> WireCount:
    """What has crossed the interface of the host in which process `pid` lives, so far."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == INTERFACE:
            field = [int(number) for number in numbers.split()]
            return WireCount(field[8], field[0], field[9], field[1], field[3] + field[11])
    raise KeyError(INTERFACE)


def _check_slowest(bits_per_s: float) -> None:
    if not bits_per_s >= SLOWEST_BITS_PER_S:
        raise UserError(f"lab: a rate must be at least {SLOWEST_BITS_PER_S:g} bit/s, got {bits_per_s:g}")


def _copy(link: NamespaceLink) -> int:
    """A file descriptor that pyroute2 may close."""
    return link.for_pyroute2.dup().detach()


@contextlib.contextmanager
def _explained(doing: str) -> Iterator[None]:
    """The kernel's refusal becomes one line that says what was being done and what is missing."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except (NetlinkError, OSError) as error:
        code = getattr(error, "code", None) or getattr(error, "errno", None)
        if code in (errno.EPERM, errno.EACCES):
            raise UserError(f"lab: {doing} is not permitted: CAP_NET_ADMIN is missing; run as root") from None
        if code in (errno.EOPNOTSUPP, errno.ENOENT):
            raise UserError(
                f"lab: {doing} is not supported by this kernel ({error}); it needs veth, bridge, sch_htb and "
                "cls_bpf (modprobe veth bridge sch_htb cls_bpf, or linux-modules-extra)"
            ) from None
        raise UserError(f"lab: {doing} failed: {error}") from None
