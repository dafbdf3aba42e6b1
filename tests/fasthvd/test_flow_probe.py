"""The flow probe: what its figures mean, and real ranks that move bytes over loopback."""

import json
import os
import subprocess
import sys

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.fasthvd import flow_probe_worker
from vsketchdlc.fasthvd.flow_coordinator import Coordinator
from vsketchdlc.fasthvd.flow_probe import FlowProbe, FlowRate, probe_hosts
from vsketchdlc.fasthvd.host_facts import HostFacts, Interface, chosen_addresses
from vsketchdlc.fasthvd.readiness import State, of_job


def host(name, affinity=8, cores=8, quota=None):
    return HostFacts(name, affinity, cores, quota, (Interface("eth0", ("10.0.0.1",), 10e9),))


def probe(*rates, cores_used=0.2, ranks=None):
    rows = [
        FlowRate(2**n, rate * 1e9, 0, cores_used if n == 0 else 1.0, 1e-3, "a")
        for n, rate in enumerate(rates)
    ]
    return FlowProbe(ranks or [host("a"), host("b")], rows, {"a": "eth0", "b": "eth0"})


def test_a_cap_of_one_flow_shows_in_what_several_get():
    capped = probe(0.956, 1.91, 3.8, 3.82)
    assert capped.flow_cap_bits_per_s == pytest.approx(1e9)
    assert capped.flows_needed == 4
    assert "--aux 4" in " ".join(capped.meaning())


def test_no_cap_where_one_flow_fills_the_network():
    free = probe(9.4, 9.4, 9.3, 9.4)
    assert free.flow_cap_bits_per_s is None
    assert free.flows_needed == 1
    assert "no cap" in free.meaning()[0]


def test_a_full_core_is_no_cap_of_the_network():
    busy = probe(12.0, 23.0, 40.0, 41.0, cores_used=0.99)
    assert busy.flow_cap_bits_per_s is None
    assert "the limit is the core's" in busy.meaning()[0]


def test_a_count_between_those_tried_is_found():
    assert probe(1.0, 2.0, 2.6, 2.6).flows_needed == 3


def test_a_rank_on_one_core_of_several_is_warned_of():
    findings = {f.name: f for f in of_job(probe(1.0, 2.0, ranks=[host("a", affinity=1), host("b")]))}
    assert findings["binding"].state is State.LIMITED
    assert "rank 0 on a is bound to 1 of 8 cores" in findings["binding"].found
    assert "--bind-to none" in findings["binding"].fix


def test_a_host_with_one_core_a_rank_is_warned_of():
    crowded = [host("a", quota=1.0), host("b")]
    finding = of_job(probe(1.0, 2.0, ranks=crowded))[0]
    assert (finding.name, finding.state) == ("cores", State.LIMITED)
    assert "host a has 1 cores for 1 rank" in finding.found


def test_interfaces_are_chosen_by_name_or_network():
    two = (Interface("eth0", ("10.0.0.1",), None), Interface("ib0", ("10.1.0.1", "fd00::1"), None))
    assert chosen_addresses(two, "") == ["10.0.0.1", "10.1.0.1", "fd00::1"]
    assert chosen_addresses(two, "ib0") == ["10.1.0.1", "fd00::1"]
    assert chosen_addresses(two, "10.1.0.0/16,eth0") == ["10.1.0.1", "10.0.0.1"]
    assert chosen_addresses(two, "eth9") == []


@pytest.mark.parametrize("hosts", ["a", "a,a", "", ","])
def test_fewer_than_two_hosts_have_nothing_to_probe(hosts):
    with pytest.raises(UserError, match="two or more different hosts"):
        probe_hosts(hosts)


def rank(number, size, name, plan):
    own = {"OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_SIZE": str(size), "FASTHVD_HOST_ID": name}
    environment = {**os.environ, **own, flow_probe_worker.PLAN_VARIABLE: plan}
    return subprocess.Popen([sys.executable, "-m", flow_probe_worker.__name__], env=environment)


def test_ranks_report_their_hosts_and_move_bytes_in_a_ring(leaves_nothing):
    with Coordinator("0123456789abcdef") as coordinator:
        plan = coordinator.plan("")
        assert ";" not in plan  # Open MPI separates the variables of its list with it
        ranks = [rank(n, 3, name, plan) for n, name in enumerate(["a", "a", "b"])]
        try:
            heard = coordinator.gather()
            assert [one.facts.name for one in heard] == ["a", "a", "b"]
            moved = coordinator.move([heard[0], heard[2]], 2, 0.1)
            assert all(one.received_bits_per_s > 1e6 for one in moved)
        finally:
            coordinator.end()
            assert [one.wait(20) for one in ranks] == [0, 0, 0]


def test_a_stranger_with_the_wrong_token_is_no_rank(leaves_nothing):
    with Coordinator("0123456789abcdef") as coordinator:
        plan = {**json.loads(coordinator.plan("")), "token": "guessed"}
        stranger = rank(0, 1, "x", json.dumps(plan))
        coordinator.launcher_ended(0)
        with pytest.raises(UserError, match="none reached this host"):
            coordinator.gather()
        coordinator.__exit__()
        stranger.wait(20)
