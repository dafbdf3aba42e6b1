"""Rates, counters, and what can be done to a wire while traffic flows.

No lower bound on a rate: this machine may be busy. That a cap is never exceeded holds on any machine.
"""

import math
import sys
import time

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.validation.lab import Lab, LabSpec
from vsketchdlc.validation.lab.shaping import flow_class

pytestmark = pytest.mark.lab

RECEIVE = """
import selectors, socket, sys, time
server = socket.create_server(("", 5000))
print("ready", flush=True)
count, received, start = int(sys.argv[1]), 0, None
poll = selectors.DefaultSelector()
for _ in range(count):
    poll.register(server.accept()[0], selectors.EVENT_READ)
start = time.monotonic()
while poll.get_map():
    for key, _ in poll.select():
        piece = key.fileobj.recv(1 << 20)
        received += len(piece)
        if not piece:
            poll.unregister(key.fileobj)
print(received * 8 / (time.monotonic() - start))
"""

SEND = """
import selectors, socket, sys, time
ports, size = [int(port) for port in sys.argv[1].split(",")], int(sys.argv[2])
poll = selectors.DefaultSelector()
for port in ports:
    flow = socket.create_connection(("h1", 5000), source_address=("", port))
    flow.setblocking(False)
    poll.register(flow, selectors.EVENT_WRITE, [size])
piece = bytes(1 << 18)
while poll.get_map():
    for key, _ in poll.select():
        key.data[0] -= key.fileobj.send(piece[: key.data[0]])
        if not key.data[0]:
            poll.unregister(key.fileobj)
            key.fileobj.close()
"""


def transfer(lab, size, ports=(0,)):
    """Send `size` bytes from h0 to h1 on each port; bits per second of payload that arrived."""
    receiver = lab.start("h1", [sys.executable, "-c", RECEIVE, str(len(ports))], stdout=-1)
    assert receiver.stdout.readline() == "ready\n"
    lab.run("h0", [sys.executable, "-c", SEND, ",".join(map(str, ports)), str(size)], check=True, timeout=60)
    return float(receiver.communicate(timeout=60)[0])


def apart(count):
    """Source ports whose flows to h1:5000 have classes of their own."""
    chosen = {}
    port = 30000
    while len(chosen) < count:
        chosen.setdefault(flow_class(port, 5000, "10.77.0.2"), port)
        port += 1
    return list(chosen.values())


def together():
    """Two source ports whose flows to h1:5000 share a class."""
    first = flow_class(40000, 5000, "10.77.0.2")
    return [40000, next(port for port in range(40001, 65536) if flow_class(port, 5000, "10.77.0.2") == first)]


def test_one_flow_gets_the_cap_and_four_the_nic(lab):
    one = transfer(lab, 8 << 20)
    four = transfer(lab, 8 << 20, apart(4))
    assert one < 250e6
    assert 1.5 * one < four < 1e9
    assert lab.collisions() == []


def test_the_interfaces_count_what_moved(lab):
    before = lab.bytes_on_wire()
    transfer(lab, 4 << 20)
    after = lab.bytes_on_wire()
    sent = after["h0"].sent_bytes - before["h0"].sent_bytes
    received = after["h1"].received_bytes - before["h1"].received_bytes
    assert sent == received
    assert 4 << 20 < sent < 1.05 * (4 << 20)


def test_two_big_flows_in_one_class_are_seen(lab):
    lab.forget_flows()
    transfer(lab, 32 << 20, together())
    (collision,) = lab.collisions()
    assert {flow.source_port for flow in collision.flows} == set(together())
    lab.forget_flows()
    assert lab.collisions() == []


def test_nic_and_cap_change_while_the_lab_runs(lab_rights, leaves_nothing):
    with Lab(LabSpec(hosts=2, nic_bits_per_s=math.inf)) as lab:
        free = transfer(lab, 16 << 20)
        lab.set_nic("h0", 200e6)
        assert transfer(lab, 4 << 20) < 200e6 < free
        lab.set_flow_cap("h0", 50e6)
        assert transfer(lab, 2 << 20) < 51e6
        lab.set_flow_cap("h0", None)
        assert 50e6 < transfer(lab, 8 << 20, apart(2)) < 200e6
        lab.set_nic("h0", math.inf)
        assert transfer(lab, 16 << 20) > 200e6


def test_the_nic_also_limits_what_arrives(lab_rights):
    with Lab(LabSpec(hosts=2, nic_bits_per_s=1e9, overrides={"h1": {"nic_bits_per_s": 100e6}})) as lab:
        assert transfer(lab, 4 << 20) < 101e6


def test_hosts_of_different_racks_share_the_uplink(lab_rights, leaves_nothing):
    spec = LabSpec(hosts=2, nic_bits_per_s=1e9, rack_hosts=1, uplink_bits_per_s=100e6)
    with Lab(spec) as lab:
        assert transfer(lab, 4 << 20) < 101e6
    with Lab(LabSpec(hosts=3, rack_hosts=2, uplink_bits_per_s=100e6)) as lab:
        assert transfer(lab, 16 << 20) > 100e6  # h0 and h1 are in one rack.
        assert lab.run("h0", ["ssh", "h2", "hostname"], capture_output=True).stdout == "h2\n"


def send_without_end(lab):
    receiver = lab.start("h1", [sys.executable, "-c", RECEIVE, "1"], stdout=-1, stderr=-1)
    assert receiver.stdout.readline() == "ready\n"
    sender = lab.start("h0", [sys.executable, "-c", SEND, "0", str(1 << 40)], stderr=-1)
    while not lab.flows():
        time.sleep(0.01)
    return sender, receiver


def sent(lab):
    return lab.bytes_on_wire()["h1"].received_bytes


def test_a_pulled_cable_is_silence_and_plugged_in_it_goes_on(lab):
    sender, receiver = send_without_end(lab)
    lab.link_down("h1")
    stopped = sent(lab)
    time.sleep(0.3)
    assert sent(lab) == stopped
    assert sender.poll() is None
    lab.link_up("h1")
    while sent(lab) < stopped + (1 << 20):
        time.sleep(0.01)
    for process in (sender, receiver):
        process.kill()
        process.communicate()
    lab.forget_flows()


def big_flow(lab):
    return max(
        (flow for flow in lab.flows() if flow.host == "h0"), key=lambda flow: lab.flows()[flow].sent_bytes
    )


def test_one_flow_can_be_slowed_and_cut(lab):
    lab.forget_flows()
    sender, receiver = send_without_end(lab)
    flow = big_flow(lab)
    lab.slow_flow(flow, 1000)
    time.sleep(0.2)  # What lies in the queue drains.
    before = sent(lab)
    time.sleep(0.3)
    assert sent(lab) - before < 200_000
    lab.slow_flow(flow, 250e6)
    lab.cut_flow(flow)
    assert "ConnectionAbortedError" in sender.communicate(timeout=20)[1]
    receiver.communicate(timeout=20)
    with pytest.raises(UserError, match="cannot be cut"):
        lab.cut_flow(flow)


def test_a_paused_host_stands_still(lab):
    sender, receiver = send_without_end(lab)
    lab.pause("h0")
    assert {process.state for process in lab.processes("h0")} <= {"T"}
    lab.resume("h0")
    assert "T" not in {process.state for process in lab.processes("h0")}
    for process in (sender, receiver):
        process.kill()
        process.communicate()


def test_a_crashed_host_says_nothing(lab_rights, leaves_nothing):
    with Lab(LabSpec(hosts=2)) as lab:
        sender, receiver = send_without_end(lab)
        lab.crash("h1")
        receiver.wait(timeout=20)
        time.sleep(0.2)
        assert sender.poll() is None  # It was not told that its connection is gone.
        with pytest.raises(UserError, match="h1 has crashed"):
            lab.run("h1", ["true"])
        sender.kill()
        sender.communicate()


def test_to_slow_one_flow_needs_a_cap(lab_rights):
    with Lab(LabSpec(hosts=2)) as lab:
        sender, receiver = send_without_end(lab)
        with pytest.raises(UserError, match="needs a flow_cap"):
            lab.slow_flow(big_flow(lab), 1000)
        for process in (sender, receiver):
            process.kill()
            process.communicate()
