import dataclasses

import pytest
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.scenario import TURNS_ON_PARTS_OF_A_CORE, WORTH_OF_PARTS_OF_A_CORE, Scenario
from vsketchdlc.model.sites import Sites
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.workload import GradientTensor, Workload

WORK = Workload("w", (GradientTensor("g", "l", 1 << 20, ready_s=0.01),), 0.01, 0.01, 0.01)


def scenario(calibrated_cores: float | None, **star) -> Scenario:
    calibration = Calibration.prior()
    if calibrated_cores is not None:
        calibration = dataclasses.replace(calibration, hosts=2, cores=calibrated_cores)
    return Scenario(WORK, Cluster.star(2, **star), calibration)


@pytest.mark.parametrize("star", [{"cores": 0.5}, {"cores": 1, "speed": 0.5}])
def test_on_parts_of_a_core_stock_takes_turns_and_cpu_time_is_worth_less(star):
    there = scenario(1.0, **star)
    assert there.on_parts_of_a_core
    assert there.parameters.stock_duplex == TURNS_ON_PARTS_OF_A_CORE
    assert there.sites.capacity["cpu:h0"] == star["cores"] * WORTH_OF_PARTS_OF_A_CORE


@pytest.mark.parametrize(
    "calibrated_cores,star", [(1.0, {"cores": 1}), (0.5, {"cores": 0.5}), (None, {"cores": 0.5})]
)
def test_where_calibrated_with_no_more_or_not_at_all_costs_stand_as_they_are(calibrated_cores, star):
    there = scenario(calibrated_cores, **star)
    assert not there.on_parts_of_a_core
    assert there.sites.capacity["cpu:h0"] == star["cores"]
    assert there.parameters == there.calibration.parameters


def test_a_whole_core_beside_a_part_of_one_keeps_its_worth():
    graph = Cluster.star(2, cores=1).graph
    graph.nodes["h1"]["host"] = dataclasses.replace(graph.nodes["h1"]["host"], speed=0.4)
    there = scenario(1.0).replaced(cluster=Cluster(graph))
    assert there.sites.capacity["cpu:h0"] == 1.0
    assert there.sites.capacity["cpu:h1"] == WORTH_OF_PARTS_OF_A_CORE


def turns(threads: float, **star) -> float:
    return Sites.of(Cluster.star(2, **star), 1.0).turns_before(threads)


def test_a_thread_that_wakes_waits_for_the_others_of_its_core():
    assert turns(1.0, cores=8) == 0.0
    assert turns(1.0, cores=1) == 1.0  # the compute thread's
    assert turns(1.0, cores=0.5) == 3.0  # two compute threads, and the other host's Horovod thread
    assert turns(1.0, cores=1, ranks_per_host=2) == 3.0
    assert turns(1.0, cores=1, speed=0.5) == 2.0  # a turn of a throttled thread lasts twice as long
    assert turns(8.0, cores=8) == 1.0


@pytest.mark.parametrize("cores,turns_waited", [(1, 1), (0.5, 3)])
def test_an_allreduce_beside_compute_begins_later_by_the_turns_of_others(cores, turns_waited):
    work = Workload("w", (GradientTensor("g", "l", 4096, ready_s=0.01),), 0.01, 0.05, 0.01)
    crowded = scenario(None, cores=cores).replaced(workload=work)
    entries = dict(crowded.calibration.entries)
    entries["busy_wait_s"] = dataclasses.replace(entries["busy_wait_s"], value=0.0)
    free = crowded.replaced(calibration=dataclasses.replace(crowded.calibration, entries=entries))
    late_s = _begins_s(crowded) - _begins_s(free)
    assert turns_waited * 1.5e-3 <= late_s <= turns_waited * 4e-3 + 1e-3


def _begins_s(asked: Scenario) -> float:
    run = simulate_step(asked)
    return run.buckets[0].allreduce_start_s - run.ready_s["g"]
