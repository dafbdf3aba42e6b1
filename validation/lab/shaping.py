"""Rates on an interface: HTB for the NIC, and for the per-flow cap 4,096 HTB classes chosen by one BPF filter.

The tree on an interface that caps flows::

    1:1  rate = ceil = NIC
      1:2           what is not TCP or UDP (ARP), and everything when there is no cap
      1:1000-1fff   one per hash of (ports, destination): small guaranteed rate, ceil = cap, borrows from 1:1

Two flows in one class share one cap; with four flows that happens once in 700 runs, and `flows.py` sees it.
"""

from __future__ import annotations

import socket
import struct

from .requests import CREATE, EXCLUSIVE, attribute, request

FLOW_CLASSES = 4096
FIRST_FLOW_CLASS = 0x1000
DEFAULT_CLASS = 2
# The rate that stands for "no NIC limit" where only flows are capped.
FASTEST_BITS_PER_S = 400e9
# A segment that TCP hands down whole (GSO); every bucket must hold one.
LARGEST_PACKET_BYTES = 65536 + 512

_HASH_FACTOR = 0x9E3779B1
_ADDRESS_FACTOR = 0x85EBCA6B
_RTM_NEWQDISC, _RTM_NEWTCLASS, _RTM_DELTCLASS = 36, 40, 41
_RTM_NEWTFILTER, _RTM_DELTFILTER = 44, 45
_ROOT = 0xFFFFFFFF
_QDISC = 0x10000
_NIC_CLASS = 1
_FILTER_INFO = 1 << 16 | socket.htons(0x0003)  # priority 1, all protocols
_TICK_NS = 64


def flow_class(source_port: int, destination_port: int, destination: str) -> int:
    """The number below FLOW_CLASSES that the filter gives a flow; the same arithmetic as `flow_filter`."""
    ports = source_port << 16 | destination_port
    where = int.from_bytes(socket.inet_aton(destination), "big") * _ADDRESS_FACTOR & 0xFFFFFFFF
    return ((ports ^ where) * _HASH_FACTOR & 0xFFFFFFFF) >> 20


def flow_filter() -> list[tuple[int, int, int, int]]:
    """The filter as classic BPF (code, jump if true, jump if false, constant), run on an Ethernet frame.

    Returns the class of a TCP or UDP packet over IPv4, 0 (no match: the default class) for anything else.
    """
    program = [
        (0x28, "", "", 12),  # ldh [12]: EtherType
        (0x15, "", "other", 0x0800),
        (0x30, "", "", 23),  # ldb [23]: protocol
        (0x15, "ports", "", 6),
        (0x15, "", "other", 17),
        (0x28, "", "", 20),  # ports: ldh [20]: fragment offset
        (0x45, "other", "", 0x1FFF),
        (0x20, "", "", 30),  # ld [30]: destination address
        (0x24, "", "", _ADDRESS_FACTOR),
        (0x02, "", "", 0),  # st M[0]
        (0xB1, "", "", 14),  # ldxb 4*([14]&0xf): IP header length
        (0x40, "", "", 14),  # ld [x+14]: both ports
        (0x61, "", "", 0),  # ldx M[0]
        (0xAC, "", "", 0),  # xor x
        (0x24, "", "", _HASH_FACTOR),
        (0x74, "", "", 20),  # rsh #20
        (0x04, "", "", 0x10000 + FIRST_FLOW_CLASS),  # add: class 1:1000 + hash
        (0x16, "", "", 0),  # ret a
        (0x06, "", "", 0),  # other: ret #0
    ]
    labels = {"ports": 5, "other": len(program) - 1}
    return [
        (code, labels[yes] - at - 1 if yes else 0, labels[no] - at - 1 if no else 0, constant)
        for at, (code, yes, no, constant) in enumerate(program)
    ]


def limit_nic(sock: socket.socket, index: int, bits_per_s: float) -> None:
    """Limit what leaves through interface `index` to `bits_per_s` (wire bits, Ethernet headers counted)."""
    settings = attribute(
        2, struct.pack("IIIII", 3, 10, DEFAULT_CLASS, 0, 0)
    )  # TCA_HTB_INIT: version, r2q, default
    body = _traffic(index, _QDISC, _ROOT, 0, "htb", settings)
    request(sock, [(_RTM_NEWQDISC, CREATE | EXCLUSIVE, body)])
    set_nic(sock, index, bits_per_s, new=True)


def set_nic(sock: socket.socket, index: int, bits_per_s: float, *, new: bool) -> None:
    """Make, or change while traffic flows, the rate of an interface that `limit_nic` limited."""
    rate = bits_per_s / 8
    top = _class(index, _NIC_CLASS, _QDISC, rate, rate)
    rest = _class(index, DEFAULT_CLASS, _QDISC + _NIC_CLASS, rate, rate)
    request(sock, [(_RTM_NEWTCLASS, _how(new), body) for body in (top, rest)])


def set_flow_caps(
    sock: socket.socket, index: int, nic_bits_per_s: float, cap_bits_per_s: float, *, new: bool
) -> None:
    """Make, or change while traffic flows, all flow classes of an interface."""
    bodies = [_flow_class(index, number, nic_bits_per_s, cap_bits_per_s) for number in range(FLOW_CLASSES)]
    request(sock, [(_RTM_NEWTCLASS, _how(new), body) for body in bodies])


def add_filter(sock: socket.socket, index: int) -> None:
    """Send flows to their classes from now on."""
    request(sock, [(_RTM_NEWTFILTER, _how(True), _filter(index))])


def drop_filter(sock: socket.socket, index: int) -> None:
    """Send flows to the default class, which has no cap, from now on."""
    body = _traffic(index, 0, _QDISC, _FILTER_INFO, "bpf", b"")
    request(sock, [(_RTM_DELTFILTER, 0, body)])


def set_one_flow_cap(
    sock: socket.socket, index: int, nic_bits_per_s: float, cap_bits_per_s: float, number: int, *, renew: bool
) -> None:
    """Give one flow class a cap of its own.

    `renew` makes the class anew, and what waits in it is lost: HTB keeps a class's debt, up to a minute of it, so
    a class that was very slow would stay so.
    """
    messages = [(_RTM_NEWTCLASS, _how(renew), _flow_class(index, number, nic_bits_per_s, cap_bits_per_s))]
    if renew:
        handle = _QDISC + FIRST_FLOW_CLASS + number
        messages.insert(0, (_RTM_DELTCLASS, 0, _traffic(index, handle, 0, 0, "htb", b"")))
    request(sock, messages)


def _how(new: bool) -> int:
    return CREATE | EXCLUSIVE if new else 0


def _flow_class(index: int, number: int, nic_bits_per_s: float, cap_bits_per_s: float) -> bytes:
    cap = cap_bits_per_s / 8
    guaranteed = min(cap, max(nic_bits_per_s / 8 / FLOW_CLASSES, 1000.0))
    return _class(index, FIRST_FLOW_CLASS + number, _QDISC + _NIC_CLASS, guaranteed, cap)


def _class(index: int, minor: int, parent: int, rate: float, ceil: float) -> bytes:
    """One HTB class; `rate` and `ceil` in bytes a second."""

    def spec(bytes_per_s: float) -> bytes:  # struct tc_ratespec, link layer Ethernet
        return struct.pack("BBHhHI", 0, 1, 0, 0, 0, min(round(bytes_per_s), 0xFFFFFFFF))

    def ticks(size: float, bytes_per_s: float) -> int:
        return min(round(size / bytes_per_s * 1e9 / _TICK_NS), 0xFFFFFFFF)

    bucket = max(
        ceil / 1000, LARGEST_PACKET_BYTES
    )  # a millisecond's worth, so that a late timer loses nothing
    own_bucket = bucket if rate == ceil else 2048
    parameters = spec(rate) + spec(ceil)
    parameters += struct.pack(
        "IIIII", ticks(own_bucket, rate), ticks(bucket, ceil), LARGEST_PACKET_BYTES, 0, 0
    )
    options = attribute(1, parameters)
    for kind, value in ((6, rate), (7, ceil)):
        if value > 0xFFFFFFFF:
            options += attribute(kind, struct.pack("Q", round(value)))
    return _traffic(index, _QDISC + minor, parent, 0, "htb", options)


def _filter(index: int) -> bytes:
    program = flow_filter()
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    options = attribute(4, struct.pack("H", len(program))) + attribute(5, code)
    return _traffic(index, 0, _QDISC, _FILTER_INFO, "bpf", options)


def _traffic(index: int, handle: int, parent: int, info: int, kind: str, options: bytes) -> bytes:
    """The body of a traffic control message: struct tcmsg and the two attributes that all kinds have."""
    head = struct.pack("BBHiIII", 0, 0, 0, index, handle, parent, info)
    return head + attribute(1, kind.encode() + b"\0") + attribute(2, options)
