import networkx as nx
import pytest
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.critical import critical_path, gain_without, step_graph
from vsketchdlc.model.step import simulate_step


def kinds(path):
    return [part.kind for part in path]


def test_the_graph_has_no_cycle_and_every_way_ends_at_the_end(demo):
    graph = step_graph(demo, simulate_step(demo))
    assert nx.is_directed_acyclic_graph(graph)
    assert [name for name in graph if graph.out_degree(name) == 0] == ["end"]
    assert [name for name in graph if graph.in_degree(name) == 0] == ["start"]


@pytest.mark.parametrize("aux", [0, 1, 4])
def test_parts_and_waits_add_up_to_the_step(demo, aux):
    scenario = demo.replaced(aux=aux)
    run = simulate_step(scenario)
    path = critical_path(scenario, run)
    assert sum(part.seconds + part.wait_s for part in path) == pytest.approx(run.step_s)


def test_under_stock_horovod_the_allreduces_are_critical_and_named_by_their_layer(demo):
    path = critical_path(demo)
    assert kinds(path)[:2] == ["forward", "backward"]
    longest = max(path, key=lambda part: part.seconds)
    assert longest.kind == "allreduce" and "dense0" in longest.name and "151 MB" in longest.name


def test_with_a_fast_network_the_backward_pass_is_critical(demo):
    cluster = Cluster.star(2, cores=16, nic_bits_per_s=400e9)
    fast = demo.replaced(cluster=cluster, aux=2, workload=demo.workload.scaled(batch_per_rank=40))
    path = critical_path(fast)
    assert sum(p.seconds for p in path if p.kind == "backward") > sum(
        p.seconds for p in path if p.kind == "allreduce"
    )


def test_leaving_the_largest_allreduce_out_gains_about_its_length(demo):
    path = critical_path(demo)
    longest = max(path, key=lambda part: part.seconds)
    gain = gain_without(demo, longest)
    assert 0.6 * longest.seconds < gain <= longest.seconds * 1.05


def test_leaving_out_what_is_hidden_gains_little(demo):
    run = simulate_step(demo)
    backward = next(part for part in critical_path(demo, run)[::-1] if part.kind == "backward")
    assert gain_without(demo, backward, run) < 0.2 * run.step_s
