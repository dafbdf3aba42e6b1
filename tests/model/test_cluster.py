import dataclasses

import networkx as nx
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.cluster import Cluster, Host
from vsketchdlc.model.sites import Sites


def test_a_star_is_uniform_and_one_host_stands_for_all():
    cluster = Cluster.star(64, 2, nic_bits_per_s=10e9, latency_s=40e-6)
    assert (cluster.ranks, cluster.is_uniform) == (128, True)
    assert cluster.worst_latency_s == pytest.approx(40e-6)
    sites = Sites.of(cluster, 0.95)
    assert [host.name for host in sites.hosts] == ["h0"]
    assert sites.transfer_needs() == {"link:h0>switch": 1.0, "link:switch>h0": 1.0}


def test_one_slower_host_makes_it_uneven():
    graph = Cluster.star(3).graph
    graph.nodes["h1"]["host"] = dataclasses.replace(graph.nodes["h1"]["host"], speed=0.5)
    cluster = Cluster(graph)
    assert not cluster.is_uniform
    assert len(Sites.of(cluster, 0.95).hosts) == 3


def test_two_switches_share_their_link_between_the_flows_that_cross_it():
    graph = nx.Graph()
    for switch in ("left", "right"):
        graph.add_node(switch, kind="switch")
    for number in range(4):
        name = f"h{number}"
        graph.add_node(name, kind="host", host=Host(name))
        graph.add_edge(name, "left" if number < 2 else "right", bits_per_s=10e9, latency_s=1e-5)
    graph.add_edge("left", "right", bits_per_s=10e9, latency_s=1e-5)
    cluster = Cluster(graph).checked()
    needs = Sites.of(cluster, 1.0).transfer_needs(distance=2)
    # Partners two apart are all across: both hosts of a side send over the one link.
    assert needs["link:left>right"] == 2.0 and needs["link:h0>left"] == 1.0
    assert cluster.latency_s("h0", "h3") == pytest.approx(3e-5)


@pytest.mark.parametrize(
    "arguments,words",
    [
        ({"hosts": 0}, "hosts is 0"),
        ({"cores": -1}, "cores is -1"),
        ({"nic_bits_per_s": 0}, "NIC rate"),
        ({"flow_cap_bits_per_s": 0}, "flow cap"),
        ({"latency_s": float("nan")}, "latency"),
        ({"ranks_per_host": 0}, "ranks per host"),
    ],
)
def test_impossible_clusters_are_refused(arguments, words):
    with pytest.raises(UserError, match=words):
        Cluster.star(**arguments)


def test_hosts_that_cannot_reach_each_other_are_refused():
    cluster = Cluster.star(2)
    cluster.graph.remove_edge("h1", "switch")
    with pytest.raises(UserError, match="do not all reach"):
        cluster.checked()
