import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.collectives import alone_s, lane_legs
from vsketchdlc.model.fluid import Activity, Fluid
from vsketchdlc.model.lanes import crowded_lane_s_per_byte, ring_cost
from vsketchdlc.model.parameters import Parameters
from vsketchdlc.model.sites import Sites


def test_cost_of_one_ring_by_hand():
    costs = Parameters(
        lane_s_per_byte=1e-9,
        lane_crowd=1.3,
        copy_s_per_byte=0.5e-9,
        lane_call_s=1e-3,
        lane_start_s=1e-4,
        lane_round_s=1e-5,
    )
    cost = ring_cost(400, 2, 4, 1, 1.0, costs, 1e-6)
    assert cost.wire_bytes == 600  # 2 * 3/4 * 400
    assert cost.cpu_s == pytest.approx(600e-9 * 1.1)
    assert cost.copy_cpu_s == pytest.approx(200e-9)
    # call + two lanes + six rounds with the wire's latency + two hops there and back of the vote
    assert cost.latency_s == pytest.approx(1e-3 + 2e-4 + 6 * 11e-6 + 4e-6)


@given(st.integers(1, 16), st.integers(2, 16), st.floats(1, 100), st.floats(0.5, 64))
def test_more_lanes_are_never_slower_but_for_what_waking_them_costs(lanes, hosts, nic, cores):
    cluster = Cluster.star(hosts, cores=cores, nic_bits_per_s=nic * 1e9, flow_cap_bits_per_s=1e9)
    costs = Parameters(lane_start_s=1e-12, lane_crowd=1.0)
    sites = Sites.of(cluster, costs.wire_efficiency)
    few = alone_s(lane_legs(sites, costs, 10**8, lanes), sites, costs)
    more = alone_s(lane_legs(sites, costs, 10**8, lanes + 1), sites, costs)
    assert more <= few * (1 + 1e-9)


@given(st.integers(1, 16), st.integers(2, 64), st.integers(1 << 20, 1 << 28))
def test_a_ring_never_beats_its_nic_its_flows_or_its_cores(lanes, hosts, nbytes):
    cluster = Cluster.star(hosts, cores=2, nic_bits_per_s=5e9, flow_cap_bits_per_s=1e9)
    costs = Parameters()
    sites = Sites.of(cluster, costs.wire_efficiency)
    seconds = alone_s(lane_legs(sites, costs, nbytes, lanes), sites, costs)
    wire = 2 * (hosts - 1) / hosts * nbytes
    assert seconds >= wire / (5e9 / 8 * costs.wire_efficiency)
    assert seconds >= wire / (lanes * 1e9 / 8 * costs.wire_efficiency)
    assert seconds >= wire * costs.lane_s_per_byte / min(2, lanes)


def test_one_host_sums_in_shared_memory_without_a_wire():
    sites = Sites.of(Cluster.star(1, 4, cores=8), 0.95)
    legs = lane_legs(sites, Parameters(), 10**8, 2)
    assert all("link" not in name for leg in legs if leg.activity for name in leg.activity.needs)
    assert alone_s(legs, sites, Parameters()) > 0


def chunk_by_chunk(cluster, costs, nbytes, lanes, chunk_bytes):
    """The ring as it really goes: every chunk of every round is a transfer that waits for the one before."""
    env = simpy.Environment()
    hosts = len(cluster.hosts)
    rate = min(cluster.nic_bits_per_s("h0") / lanes, cluster.flow_cap_bits_per_s) / 8 * costs.wire_efficiency
    fluid = Fluid(env, {f"flow{h}": rate for h in range(hosts)})
    segment = nbytes / lanes / hosts
    chunks = max(1, round(segment / chunk_bytes))
    arrived = {
        (h, r, c): env.event() for h in range(hosts) for r in range(-1, 2 * hosts - 2) for c in range(chunks)
    }
    for h in range(hosts):
        for c in range(chunks):
            arrived[h, -1, c].succeed()

    def deliver(event):
        yield env.timeout(costs.lane_round_s + cluster.worst_latency_s)
        event.succeed()

    def send(h):
        for r in range(2 * hosts - 2):
            for c in range(chunks):
                yield arrived[h, r - 1, c]
                yield fluid.start(Activity("chunk", segment / chunks, {f"flow{h}": 1.0}))
                env.process(deliver(arrived[(h + 1) % hosts, r, c]))

    for h in range(hosts):
        env.process(send(h))
    env.run(until=simpy.AllOf(env, list(arrived.values())))
    return env.now


@pytest.mark.parametrize("hosts", [2, 3, 5, 8])
@pytest.mark.parametrize("lanes", [1, 4])
def test_one_activity_is_as_long_as_the_ring_chunk_by_chunk(hosts, lanes):
    cluster = Cluster.star(hosts, cores=64, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)
    tiny = dict.fromkeys(("lane_s_per_byte", "copy_s_per_byte", "lane_call_s", "lane_start_s"), 1e-15)
    costs = Parameters(**tiny)
    sites = Sites.of(cluster, costs.wire_efficiency)
    once = alone_s(lane_legs(sites, costs, 64 << 20, lanes), sites, costs)
    assert once == pytest.approx(chunk_by_chunk(cluster, costs, 64 << 20, lanes, 256 << 10), rel=0.03)


def test_part_of_a_core_is_crowded_as_a_whole_one():
    costs = Parameters()
    half, whole, two = (crowded_lane_s_per_byte(costs, 4, cores) for cores in (0.5, 1.0, 2.0))
    assert half == whole > two
