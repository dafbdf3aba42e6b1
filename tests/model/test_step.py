import dataclasses

import pytest
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.parameters import INFO
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.model.step import StepDraw, simulate_step
from vsketchdlc.model.workload import GradientTensor, StepSpread, Workload

TINY = 1e-15


def only(**values):
    """All costs next to nothing but these."""
    entries = {
        name: dataclasses.replace(entry, value=values.get(name, TINY))
        for name, entry in Calibration.prior().entries.items()
    }
    for name in ("wire_efficiency", "stock_duplex", "lane_crowd"):
        entries[name] = dataclasses.replace(entries[name], value=values.get(name, 1.0))
    assert set(entries) == set(INFO)
    return Calibration(entries)


def work(*tensors, forward_s=1.0, backward_s=2.0, update_s=0.0, **fields):
    gradients = tuple(
        GradientTensor(name, name, nbytes, "float32", ready, number)
        for number, (name, nbytes, ready) in enumerate(tensors)
    )
    steady = StepSpread(compute=0.0, communication=0.0)
    return Workload("hand", gradients, forward_s, backward_s, update_s, spread=steady, **fields)


def plenty(hosts=2, **changes):
    settings = {"cores": 64, "nic_bits_per_s": 8e9, "latency_s": 0.0, **changes}
    return Cluster.star(hosts, **settings)


def log(run):
    return [
        (
            [t.name for t in bucket.tensors],
            round(bucket.start_s, 4),
            round(bucket.allreduce_end_s, 4),
        )
        for bucket in run.buckets
    ]


def test_two_buckets_one_after_the_other_over_the_nic():
    # NIC 8 Gbit/s = 1e9 B/s; N = 2: every byte crosses once each way. 1e9 B take 1 s.
    scenario = Scenario(work(("b", 10**9, 0.5), ("a", 5 * 10**8, 2.0)), plenty(), only(), cycle_s=0.0)
    run = simulate_step(scenario)
    assert log(run) == [(["b"], 1.5, 2.5), (["a"], 3.0, 3.5)]
    assert run.step_s == pytest.approx(3.5, abs=1e-3)


def test_gradients_that_pile_up_behind_a_bucket_go_together():
    tensors = [("d", 10**8, 0.1), ("c", 10**7, 0.15), ("b", 10**7, 0.18), ("a", 10**7, 0.5)]
    run = simulate_step(Scenario(work(*tensors, backward_s=0.5), plenty(), only(), cycle_s=0.0))
    assert log(run) == [(["d"], 1.1, 1.2), (["c", "b"], 1.2, 1.22), (["a"], 1.5, 1.51)]


def test_a_cycle_waits_for_its_turn():
    # Cycles of 100 ms from 0: a gradient ready at 1.03 s is seen at 1.1 s.
    scenario = Scenario(work(("a", 10**8, 0.03), backward_s=0.03), plenty(), only(), cycle_s=0.1)
    assert log(simulate_step(scenario)) == [(["a"], 1.1, 1.2)]


def test_the_first_step_negotiates():
    scenario = Scenario(work(("a", 10**8, 0.0)), plenty(latency_s=0.01), only(), cycle_s=0.0, cached=False)
    late = simulate_step(scenario).buckets[0].start_s
    cached = simulate_step(scenario.replaced(cached=True)).buckets[0].start_s
    assert late - cached == pytest.approx(4 * 0.01 + 2 * 2e-6, rel=0.01)


def test_the_flow_cap_holds_stock_back_and_lanes_add_up_to_the_nic():
    # Cap a quarter of the NIC: 1e8 B take 0.4 s by one flow, 0.2 by two, 0.1 by four and by five.
    cluster = plenty(flow_cap_bits_per_s=2e9)
    scenario = Scenario(work(("a", 10**8, 2.0)), cluster, only(), cycle_s=0.0)
    steps = [simulate_step(scenario.replaced(aux=aux)).step_s for aux in (0, 1, 2, 4, 5)]
    assert steps == pytest.approx([3.4, 3.4, 3.2, 3.1, 3.1], abs=1e-3)


def test_lanes_that_share_one_core_with_training_slow_it_down():
    # 1e8 B cost 1 core second in lanes; backward needs 2 more seconds of the only core.
    calibration = only(lane_s_per_byte=1e-8)
    scenario = Scenario(
        work(("a", 10**8, 0.0), ("z", 4, 2.0)), plenty(cores=1), calibration, cycle_s=0.0, aux=2
    )
    run = simulate_step(scenario)
    # Two lane threads and the training share the core: the ring gets 2/3 of it.
    assert log(run)[0] == (["a"], 1.0, 2.5)
    assert run.backward_end_s == pytest.approx(4.0, abs=1e-3)


def test_more_lanes_than_a_small_host_can_run_make_steps_longer(demo):
    def steps(cores):
        place = Cluster.star(2, cores=cores, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)
        return [simulate_step(demo.replaced(cluster=place, aux=aux)).step_s for aux in (1, 2, 4, 8, 16)]

    small, large = steps(0.2), steps(8)
    assert min(small) == min(small[:2]) < 0.9 * small[-1]
    assert large[-1] < min(large) * 1.01


def test_a_spinning_stock_thread_takes_its_share_from_training():
    calibration = only(spin_weight=1.0)
    cluster = plenty(cores=1, flow_cap_bits_per_s=8e8)
    scenario = Scenario(work(("a", 10**8, 0.0), ("z", 4, 2.0)), cluster, calibration, cycle_s=0.0)
    # The allreduce takes 1 s on the wire, and its thread polls half of the core away.
    assert simulate_step(scenario).backward_end_s == pytest.approx(3.5, abs=2e-3)


def test_a_gpu_does_not_feel_busy_cores():
    gpu = work(("a", 10**8, 0.0), ("z", 4, 2.0), device="gpu", cpu_share=0.0)
    scenario = Scenario(gpu, plenty(cores=1), only(lane_s_per_byte=1e-8), cycle_s=0.0, aux=4)
    assert simulate_step(scenario).backward_end_s == pytest.approx(3.0, abs=1e-6)


def test_updates_run_in_groups_as_their_last_gradient_is_done():
    # Groups of two in the order of the index: (a, b) and (c, d); 0.4 s of update by bytes.
    tensors = [("a", 10**8, 0.0), ("b", 10**8, 0.0), ("c", 10**8, 1.0), ("d", 10**8, 2.0)]
    scenario = Scenario(work(*tensors, update_s=0.4, update_group=2), plenty(), only(), cycle_s=0.0)
    run = simulate_step(scenario, record=True)
    updates = [(round(m.start_s, 3), round(m.end_s, 3)) for m in run.marks if m.kind.value == "update"]
    # The first group is ready at 1.2 s but its turn on the engine's worker comes after the bulk that runs.
    assert updates == [(1.2, 2.2), (3.3, 3.5)]


def test_fused_buckets_are_copied_in_and_out():
    calibration = only(fuse_in_s_per_byte=1e-9, fuse_out_s_per_byte=1e-9)
    tensors = [("a", 5 * 10**7, 2.0), ("b", 5 * 10**7, 2.0)]
    run = simulate_step(Scenario(work(*tensors), plenty(), calibration, cycle_s=0.0))
    assert run.step_s == pytest.approx(3.0 + 0.1 + 0.1 + 0.1, abs=1e-3)


def test_a_slow_host_holds_up_the_others():
    cluster = plenty(3)
    graph = cluster.graph.copy()
    graph.nodes["h1"]["host"] = dataclasses.replace(graph.nodes["h1"]["host"], speed=0.5)
    uneven = Cluster(graph)
    scenario = Scenario(work(("a", 4000, 2.0)), uneven, only(), cycle_s=0.0)
    assert simulate_step(scenario).step_s == pytest.approx(6.0, abs=1e-3)


@pytest.mark.parametrize("aux", [0, 1, 4])
@pytest.mark.parametrize("hosts", [2, 3, 4, 8])
def test_equal_hosts_simulated_once_and_one_by_one_agree(demo, hosts, aux):
    cluster = Cluster.star(hosts, cores=2, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)
    graph = cluster.graph.copy()
    graph.add_node("elsewhere", kind="switch")
    graph.add_edge("switch", "elsewhere", bits_per_s=1e12, latency_s=0.0)
    each = Cluster(graph, cluster.flow_cap_bits_per_s)
    assert cluster.is_uniform and not each.is_uniform
    once = simulate_step(demo.replaced(cluster=cluster, aux=aux))
    one_by_one = simulate_step(demo.replaced(cluster=each, aux=aux))
    assert one_by_one.step_s == pytest.approx(once.step_s, rel=1e-6)


def test_a_drawn_step_is_slower_where_its_factors_say_so(demo):
    typical = simulate_step(demo, StepDraw())
    slow = simulate_step(demo, StepDraw(compute=(1.5,)))
    wire = simulate_step(demo, StepDraw(communication=(2.0,) * 8))
    assert slow.forward_end_s == pytest.approx(1.5 * typical.forward_end_s)
    assert wire.step_s > typical.step_s * 1.5


def test_busy_shares_lie_between_nothing_and_all(demo):
    for aux in (0, 2, 6):
        assert all(0 <= share <= 1.0001 for share in simulate_step(demo.replaced(aux=aux)).busy.values())


def test_a_loop_that_does_not_block_hides_communication_behind_the_next_forward():
    # Two layers; "late" is reduced last but read first, "early" first but read last.
    tensors = [("early", 10**9, 1.0), ("late", 1000, 2.0)]
    base = work(*tensors, forward_s=2.0, update_group=1)
    scenario = Scenario(base, plenty(), only(), cycle_s=0.0)
    assert simulate_step(scenario).step_s == pytest.approx(4.0, abs=1e-3)
    slow = scenario.replaced(cluster=plenty(nic_bits_per_s=4e9))
    # The allreduce of "early" takes 2 s from the middle of backward on: a blocking loop waits 1 s for it,
    # the other runs the first half of the next forward pass meanwhile; "late" has to wait behind it, though.
    assert simulate_step(slow).step_s == pytest.approx(5.0, abs=1e-3)
    free = slow.replaced(workload=dataclasses.replace(base, blocking=False))
    assert simulate_step(free).step_s == pytest.approx(5.0, abs=1e-3)
    swapped = work(("late", 1000, 1.0), ("early", 10**9, 2.0), forward_s=2.0, update_group=1, blocking=False)
    assert simulate_step(slow.replaced(workload=swapped)).step_s == pytest.approx(6.0, abs=1e-3)


def test_what_the_next_forward_reads_last_may_come_last():
    # "tail" is ready first but large; the small "head" does not wait for it with a fusion of its own cycle.
    tensors = [("head", 1000, 1.0), ("tail", 5 * 10**8, 1.0 + 1e-3)]
    free = work(*tensors, forward_s=2.0, backward_s=2.0, update_group=1, blocking=False)
    run = simulate_step(Scenario(free, plenty(nic_bits_per_s=4e9), only(), cycle_s=0.0))
    assert run.step_s == pytest.approx(4.0, abs=5e-3)


def test_loading_data_on_the_training_core_slows_it_down():
    base = work(("a", 1000, 2.0))
    scenario = Scenario(base, plenty(cores=1), only(), cycle_s=0.0)
    loading = scenario.replaced(workload=dataclasses.replace(base, loader_cpu_s=1.5))
    assert simulate_step(loading).step_s == pytest.approx(4.5, abs=1e-3)
    assert simulate_step(loading.replaced(cluster=plenty(cores=2))).step_s == pytest.approx(3.0, abs=1e-3)


def test_memory_bandwidth_holds_copies_back():
    calibration = only(copy_s_per_byte=1e-10, lane_s_per_byte=1e-12)
    scenario = Scenario(work(("a", 10**9, 2.0)), plenty(nic_bits_per_s=1e12), calibration, cycle_s=0.0, aux=4)
    free = simulate_step(scenario).step_s
    # Copy in and out read and write 4e9 bytes, the ring moves 3.5e9: 7.5 s at 1e9 bytes a second.
    narrow = scenario.replaced(cluster=plenty(nic_bits_per_s=1e12, memory_bytes_per_s=1e9))
    assert free == pytest.approx(3.2, abs=0.02)
    assert simulate_step(narrow).step_s == pytest.approx(3.0 + 7.5, abs=0.02)


def test_a_small_window_caps_a_flow_and_lanes_add_up():
    # 1e6 bytes a round trip of 20 ms: 5e7 B/s a flow.
    far = plenty(latency_s=0.01, window_bytes=1e6)
    scenario = Scenario(work(("a", 10**8, 2.0)), far, only(), cycle_s=0.0)
    one = simulate_step(scenario.replaced(aux=1)).step_s
    four = simulate_step(scenario.replaced(aux=4)).step_s
    assert one - 3.0 == pytest.approx(2.0, abs=0.1)
    assert four - 3.0 == pytest.approx(0.5, abs=0.1)


def test_an_oversubscribed_uplink_slows_what_crosses_it():
    racks = Cluster.two_tier(8, 4, 4.0, cores=64, nic_bits_per_s=8e9, latency_s=0.0)
    flat = plenty(8)
    scenario = Scenario(work(("a", 10**8, 2.0)), flat, only(), cycle_s=0.0)
    stock_flat = simulate_step(scenario).step_s - 3.0
    stock_racks = simulate_step(scenario.replaced(cluster=racks)).step_s - 3.0
    # Rabenseifner exchanges with the rank 4 away: four flows share an uplink of one NIC's rate.
    assert stock_flat == pytest.approx(0.175, abs=0.005)
    assert stock_racks > 1.4 * stock_flat
    # A ring crosses each uplink once: lanes do not mind.
    ring = simulate_step(scenario.replaced(cluster=racks, aux=4)).step_s - 3.0
    assert ring == pytest.approx(stock_flat, rel=0.02)


def test_background_traffic_leaves_less_of_a_link():
    graph = plenty().graph
    for edge in graph.edges:
        graph.edges[edge]["background_bits_per_s"] = 4e9
    scenario = Scenario(work(("a", 10**9, 2.0)), Cluster(graph), only(), cycle_s=0.0)
    assert simulate_step(scenario).step_s == pytest.approx(5.0, abs=1e-3)


def test_several_ranks_a_host_use_han_and_share_the_nic():
    scenario = Scenario(work(("a", 10**8, 2.0)), plenty(2, ranks_per_host=4), only(), cycle_s=0.0)
    # One leader a host sends and receives everything once: 1e8 bytes at 1e9 B/s.
    assert simulate_step(scenario).step_s == pytest.approx(3.1, abs=1e-3)
    # With four hosts the tree's root sends everything twice.
    assert simulate_step(scenario.replaced(cluster=plenty(4, ranks_per_host=4))).step_s == pytest.approx(
        3.2, abs=1e-3
    )


def test_lanes_sum_over_the_ranks_of_their_host():
    calibration = only(copy_s_per_byte=1e-9)
    one = Scenario(work(("a", 10**8, 2.0)), plenty(2, nic_bits_per_s=1e12), calibration, cycle_s=0.0, aux=2)
    four = one.replaced(cluster=plenty(2, ranks_per_host=4, nic_bits_per_s=1e12))
    # Copies of four ranks run side by side; two lanes add three more buffers: 3e8 bytes at 1 ns on two threads.
    assert simulate_step(one).step_s == pytest.approx(3.2, abs=2e-3)
    assert simulate_step(four).step_s == pytest.approx(3.35, abs=2e-3)
