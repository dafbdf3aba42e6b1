"""The per-flow cap's filter, run by a small interpreter of classic BPF, against the same hash in Python."""

import socket
import struct

from hypothesis import given
from hypothesis import strategies as st
from vsketchdlc.validation.lab.shaping import FIRST_FLOW_CLASS, FLOW_CLASSES, flow_class, flow_filter

PORTS = st.integers(1, 65535)
TCP, UDP, ICMP = 6, 17, 1


def frame(
    source_port, destination_port, destination, protocol=TCP, options=b"", fragment=0, ethertype=0x0800
):
    words = (5 + len(options) // 4) | 0x40
    ip = struct.pack(">BBHHHBBH", words, 0, 0, 0, fragment, 64, protocol, 0)
    ip += socket.inet_aton("10.77.0.1") + socket.inet_aton(destination) + options
    return (
        bytes(12)
        + struct.pack(">H", ethertype)
        + ip
        + struct.pack(">HH", source_port, destination_port)
        + bytes(16)
    )


def run(program, packet):
    a = x = at = 0
    memory = [0] * 16
    while True:
        code, yes, no, k = program[at]
        at += 1
        if code in (0x20, 0x28, 0x30, 0x40):
            size = {0x20: 4, 0x28: 2, 0x30: 1, 0x40: 4}[code]
            place = k + (x if code == 0x40 else 0)
            a = int.from_bytes(packet[place : place + size], "big")
        elif code == 0x15:
            at += yes if a == k else no
        elif code == 0x45:
            at += yes if a & k else no
        elif code == 0x24:
            a = a * k & 0xFFFFFFFF
        elif code == 0x02:
            memory[k] = a
        elif code == 0xB1:
            x = 4 * (packet[k] & 0xF)
        elif code == 0x61:
            x = memory[k]
        elif code == 0xAC:
            a ^= x
        elif code == 0x74:
            a >>= k
        elif code == 0x04:
            a = a + k & 0xFFFFFFFF
        elif code == 0x16:
            return a
        elif code == 0x06:
            return k
        else:
            raise AssertionError(hex(code))


@given(PORTS, PORTS, st.integers(1, 254), st.sampled_from([TCP, UDP]), st.sampled_from([b"", bytes(8)]))
def test_the_filter_and_the_python_hash_agree(source_port, destination_port, host, protocol, options):
    destination = f"10.77.0.{host}"
    packet = frame(source_port, destination_port, destination, protocol, options)
    number = flow_class(source_port, destination_port, destination)
    assert 0 <= number < FLOW_CLASSES
    assert run(flow_filter(), packet) == 0x10000 + FIRST_FLOW_CLASS + number


def test_what_has_no_ports_goes_to_the_default_class():
    program = flow_filter()
    assert run(program, frame(1, 2, "10.77.0.2", protocol=ICMP)) == 0
    assert run(program, frame(1, 2, "10.77.0.2", fragment=100)) == 0
    assert run(program, frame(1, 2, "10.77.0.2", ethertype=0x0806)) == 0


def test_neighbouring_ports_and_hosts_get_classes_of_their_own():
    neighbours = [(40000 + n, 5000, "10.77.0.2") for n in range(64)]
    neighbours += [(40000, 5001 + n, "10.77.0.2") for n in range(64)]
    neighbours += [(40000, 5000, f"10.77.0.{3 + n}") for n in range(60)]
    classes = [flow_class(*flow) for flow in neighbours]
    # 188 random flows in 4,096 classes would give 4 shared ones.
    assert len(classes) - len(set(classes)) <= 8
