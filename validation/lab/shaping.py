"""Rates on an interface: HTB for the NIC, and for the per-flow cap 4,096 HTB classes chosen by one BPF filter.

The tree on an interface that caps flows::

    1:1  rate = ceil = NIC
      1:2           what is not TCP or UDP (ARP), and everything when there is no cap
      1:1000-1fff   one per hash of (ports, destination): small guaranteed rate, ceil = cap, borrows from 1:1

Two flows in one class share one cap; with four flows that happens once in 700 runs, and `flows.py` sees it.

The classes are written with messages packed here: 4,096 of them take 0.6 s, through pyroute2 2.5 s.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .network import NamespaceLink

FLOW_CLASSES = 4096
FIRST_FLOW_CLASS = 0x1000
DEFAULT_CLASS = 2
# The rate that stands for "no NIC limit" where only flows are capped.
FASTEST_BITS_PER_S = 400e9
# A segment that TCP hands down whole (GSO); every bucket must hold one.
LARGEST_PACKET_BYTES = 65536 + 512

_HASH_FACTOR = 0x9E3779B1
_ADDRESS_FACTOR = 0x85EBCA6B
_RTM_NEWTCLASS, _RTM_NEWTFILTER = 40, 44
_REQUEST, _ACK, _CREATE, _EXCL = 0x1, 0x4, 0x400, 0x200
_ETH_P_ALL = 0x0003
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


def limit_sending(
    link: NamespaceLink, index: int, nic_bits_per_s: float, cap_bits_per_s: float | None
) -> None:
    """Shape what leaves through interface `index`: `nic_bits_per_s` in all, `cap_bits_per_s` for each flow."""
    link.ip.tc("add", "htb", index, 0x10000, default=DEFAULT_CLASS)
    nic = nic_bits_per_s / 8
    _send(
        link.raw,
        [
            _class(index, 1, 0x10000, nic, nic, nic / 1000),
            _class(index, DEFAULT_CLASS, 0x10001, nic, nic, nic / 1000),
        ],
    )
    if cap_bits_per_s is not None:
        set_flow_cap(link, index, nic_bits_per_s, cap_bits_per_s, new=True)
        _send(link.raw, [_filter(index)])


def set_flow_cap(
    link: NamespaceLink, index: int, nic_bits_per_s: float, cap_bits_per_s: float, *, new: bool
) -> None:
    """Make, or change while traffic flows, all flow classes of an interface."""
    guaranteed = max(nic_bits_per_s / 8 / FLOW_CLASSES, 1000.0)
    cap = cap_bits_per_s / 8
    messages = [
        _class(index, FIRST_FLOW_CLASS + number, 0x10001, min(guaranteed, cap), cap, cap / 1000, new=new)
        for number in range(FLOW_CLASSES)
    ]
    _send(link.raw, messages)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _traffic_message(
    kind: int, flags: int, index: int, handle: int, parent: int, info: int, *attributes: bytes
) -> bytes:
    body = struct.pack("BBHiIII", 0, 0, 0, index, handle, parent, info) + b"".join(attributes)
    return struct.pack("IHHII", 16 + len(body), kind, flags | _REQUEST, 0, 0) + body


def _class(
    index: int, minor: int, parent: int, rate: float, ceil: float, burst: float, *, new: bool = True
) -> bytes:
    """One HTB class; `rate` and `ceil` in bytes a second, `burst` bytes above `ceil` at once."""

    def spec(bytes_per_s: float) -> bytes:  # struct tc_ratespec, link layer Ethernet
        return struct.pack("BBHhHI", 0, 1, 0, 0, 0, min(round(bytes_per_s), 0xFFFFFFFF))

    def ticks(size: float, bytes_per_s: float) -> int:
        return min(round(size / bytes_per_s * 1e9 / _TICK_NS), 0xFFFFFFFF)

    bucket = max(burst, LARGEST_PACKET_BYTES)
    own_bucket = bucket if rate == ceil else 2048
    parameters = spec(rate) + spec(ceil)
    parameters += struct.pack(
        "IIIII", ticks(own_bucket, rate), ticks(bucket, ceil), LARGEST_PACKET_BYTES, 0, 0
    )
    options = _attribute(1, parameters)
    for kind, value in ((6, rate), (7, ceil)):
        if value > 0xFFFFFFFF:
            options += _attribute(kind, struct.pack("Q", round(value)))
    flags = _CREATE | _EXCL if new else 0
    kind_and_options = _attribute(1, b"htb\0"), _attribute(2, options)
    return _traffic_message(_RTM_NEWTCLASS, flags, index, 0x10000 + minor, parent, 0, *kind_and_options)


def _filter(index: int) -> bytes:
    program = flow_filter()
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    options = _attribute(4, struct.pack("H", len(program))) + _attribute(5, code)
    info = 1 << 16 | socket.htons(_ETH_P_ALL)
    kind_and_options = _attribute(1, b"bpf\0"), _attribute(2, options)
    return _traffic_message(_RTM_NEWTFILTER, _CREATE | _EXCL, index, 0, 0x10000, info, *kind_and_options)


def _send(sock: socket.socket, messages: list[bytes], together: int = 64) -> None:
    """Send requests in bunches and wait for the last answer of each; raises OSError as the kernel answers."""
    for first in range(0, len(messages), together):
        bunch = messages[first : first + together]
        last = bytearray(bunch[-1])
        flags, sequence = struct.unpack_from("=HI", last, 6)[0] | _ACK, first + 1
        struct.pack_into("=HI", last, 6, flags, sequence)
        sock.send(b"".join(bunch[:-1]) + bytes(last))
        _await(sock, sequence)


def _await(sock: socket.socket, sequence: int) -> None:
    while True:
        answer = sock.recv(65536)
        place = 0
        while place + 16 <= len(answer):
            length, kind, _, number, _ = struct.unpack_from("IHHII", answer, place)
            if kind == 2:  # NLMSG_ERROR, also an acknowledgement
                code = -struct.unpack_from("i", answer, place + 16)[0]
                if code:
                    raise OSError(code, f"{os.strerror(code)} ({errno.errorcode.get(code, code)})")
                if number == sequence:
                    return
            place += max(16, length + 3 & ~3)
