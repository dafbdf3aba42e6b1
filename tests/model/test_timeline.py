"""A predicted step as a trace: its events mean what recorded ones mean, lanes included."""

import dataclasses

import pytest
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.lanes import weighted_shares
from vsketchdlc.model.observations import observe
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.timeline import write_simulated_trace
from vsketchdlc.model.workload import PushTimes
from vsketchdlc.tracer.trace import write_trace


@pytest.fixture
def pushing(demo):
    push = PushTimes(first_s=2e-3, every_s=1e-5, call_s=1e-6)
    return demo.replaced(workload=dataclasses.replace(demo.workload, push=push))


def of_tensor(trace, tensor):
    events = trace.events(kinds=["push", "ready", "enqueue", "negotiate", "done"])
    events = events[(events["tensor"] == tensor) & (events["step"] == 1) & (events["rank"] == 0)]
    return {row["kind"]: row for row in events.to_dict("records")}


def test_one_stamp_follows_the_other_as_in_a_recording(pushing, tmp_path):
    trace = write_simulated_trace(pushing, tmp_path / "t", steps=3)
    life = of_tensor(trace, "conv0_weight")
    assert life["ready"]["t_start_ns"] == life["push"]["t_start_ns"]
    assert life["enqueue"]["t_start_ns"] == life["ready"]["t_end_ns"]
    # Queued during the allreduce of dense0, agreed on only after it.
    assert life["negotiate"]["t_start_ns"] == life["enqueue"]["t_end_ns"]
    assert life["negotiate"]["t_end_ns"] - life["negotiate"]["t_start_ns"] > 1e9
    assert life["done"]["bucket"] == life["negotiate"]["bucket"] > 0
    updates = trace.query("select count(*) n from events where kind = 'update' group by rank, step")
    assert set(updates["n"]) == {1}
    assert observe(trace).push.first_s == pytest.approx(2e-3)


def test_each_lane_has_a_track_of_its_own_without_a_rank(demo, tmp_path):
    cluster = Cluster.star(2, 2, cores=4, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)
    trace = write_simulated_trace(demo.replaced(aux=3, cluster=cluster), tmp_path / "t")
    lanes = trace.query("select * from events where lane is not null and step = 1")
    assert lanes["rank"].isna().all() and lanes.groupby("process")["host"].nunique().eq(1).all()
    assert lanes.groupby("host")["lane"].unique().map(len).to_dict() == {"h0": 3, "h1": 3}
    kinds = ["lane_local_sum", "lane_reduce_scatter", "lane_allgather"]
    assert sorted(lanes["kind"].unique()) == sorted(kinds)
    # With two hosts half of the vector goes each way in each half of the ring.
    sent = lanes[(lanes["kind"] == kinds[1]) & (lanes["host"] == "h0")]
    reduced = trace.query("select sum(bytes) n from events where kind='allreduce' and step=1 and rank=0")
    assert sent["bytes"].sum() == pytest.approx(int(reduced["n"][0]) / 2, rel=0.01)


def test_lanes_divide_the_bytes_as_their_flows_go():
    assert weighted_shares([1e8, 1e8, 0.95e8]) == pytest.approx([1 / 3] * 3)  # not worth it
    assert weighted_shares([1e8, 3e8]) == pytest.approx([0.25, 0.75])
    assert min(weighted_shares([1.0, 1e9])) == pytest.approx(1 / 256, rel=0.01)


def test_one_slow_flow_costs_only_its_share(demo):
    slow = dataclasses.replace(demo.cluster, lane_caps_bits_per_s=(2.5e8,))
    wide = Cluster.star(2, cores=8, nic_bits_per_s=1e11, flow_cap_bits_per_s=1e9)
    equal = simulate_step(demo.replaced(cluster=wide, aux=2)).step_s
    uneven = dataclasses.replace(wide, lane_caps_bits_per_s=slow.lane_caps_bits_per_s)
    found = simulate_step(demo.replaced(cluster=uneven, aux=2)).step_s
    compute_s = demo.workload.forward_s + demo.workload.backward_s + demo.workload.update_s
    # Two flows of 1 Gbit/s against 1 and 0.25: the ring takes 1.6 times as long, not four times.
    assert 1.3 < (found - compute_s) / (equal - compute_s) < 1.8


def test_a_hiccup_within_a_bulk_does_not_make_two_of_it(pushing, tmp_path):
    trace = write_simulated_trace(pushing, tmp_path / "t", steps=6)
    ready = observe(trace).ready.set_index("tensor")["ready_s"]
    events = trace.events()
    late = (events["kind"] == "ready") & (events["tensor"] == "dense0_weight") & (events["step"] <= 2)
    events.loc[late, "t_end_ns"] += 4_000_000
    disturbed = write_trace(tmp_path / "disturbed", trace.meta, events)
    again = observe(disturbed).ready.set_index("tensor")["ready_s"]
    assert again["dense0_weight"] == again["dense0_bias"] == pytest.approx(ready["dense0_bias"], abs=1e-6)
