"""Every answer in words flips when the scenario does."""

import pytest
from vsketchdlc.model.bottleneck import limiting, sensitivity, sentence
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.prediction import predict


@pytest.fixture
def limit(demo):
    def find(aux=4, workload=None, **cluster):
        settings = {"cores": 32, "nic_bits_per_s": 40e9, "flow_cap_bits_per_s": 40e9, **cluster}
        scenario = demo.replaced(cluster=Cluster.star(2, **settings), aux=aux)
        if workload is not None:
            scenario = scenario.replaced(workload=workload)
        return limiting(predict(scenario, intervals=False))

    return find


def test_a_tight_cap_is_named(limit):
    assert limit(flow_cap_bits_per_s=1e9) == "flow_cap"


def test_enough_lanes_under_the_same_cap_name_the_nic(limit):
    assert limit(flow_cap_bits_per_s=1e9, nic_bits_per_s=4e9, aux=2) == "flow_cap"
    assert limit(flow_cap_bits_per_s=1e9, nic_bits_per_s=4e9, aux=8) == "nic"


def test_a_narrow_nic_is_named(limit):
    assert limit(nic_bits_per_s=1e9) == "nic"


def test_one_core_for_all_is_named(limit):
    assert limit(cores=1, aux=8) == "cores"


def test_slow_copies_of_one_thread_are_the_cores_speed(limit, demo):
    assert limit(aux=16, workload=demo.workload.scaled(speed=20)) == "core_speed"


def test_long_compute_is_named(limit, demo):
    assert limit(workload=demo.workload.scaled(batch_per_rank=4000)) == "compute"


def test_without_a_cap_there_is_nothing_to_gain_from_it(demo):
    free = demo.replaced(cluster=Cluster.star(2, nic_bits_per_s=4e9))
    assert "flow_cap" not in sensitivity(free)
    assert sensitivity(demo)["flow_cap"] > 0.05


def test_what_limits_next_depends_on_cores_and_nic(demo):
    def said(**place):
        cluster = Cluster.star(2, flow_cap_bits_per_s=1e9, **place)
        predictions, limits = [], []
        for aux in (0, 1, 2, 4, 6, 8):
            predictions.append(predict(demo.replaced(cluster=cluster, aux=aux), intervals=False))
            limits.append(limiting(predictions[-1], limits[-1] if limits else None))
        return sentence(predictions, limits)

    cap = "with 2 hosts the per-flow cap holds you back"
    assert said(cores=32, nic_bits_per_s=5e9) == f"{cap} until 6 lanes, then the NIC"
    assert said(cores=32, nic_bits_per_s=40e9) == f"{cap} at every count from 0 to 8 lanes"
    assert said(cores=0.5, nic_bits_per_s=40e9) == f"{cap} until 2 lanes, then the number of cores"


def test_the_sentence_follows_the_limits(demo):
    predictions = [predict(demo.replaced(aux=aux), intervals=False) for aux in (0, 1, 2, 4, 6)]

    def said(*limits):
        return sentence(predictions, limits)

    assert said("flow_cap", "flow_cap", "flow_cap", "nic", "nic") == (
        "with 2 hosts the per-flow cap holds you back until 4 lanes, then the NIC"
    )
    assert said(*["nic"] * 5) == "with 2 hosts the NIC holds you back at every count from 0 to 6 lanes"
    assert said("flow_cap", "flow_cap", "nic", "cores", "cores").endswith(
        "then the NIC, from 4 lanes on the number of cores"
    )
