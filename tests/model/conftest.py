import dataclasses

import pytest
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.collectives import alone_s, lane_legs, stock_legs
from vsketchdlc.model.probe import LaneProbe, ProbeRow
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.model.sites import Sites
from vsketchdlc.model.workload import GradientTensor, Workload

MB = 1_000_000
ALEXNET = [
    ("dense2_bias", 4_000, 0.010),
    ("dense2_weight", 16_384_000, 0.010),
    ("dense1_bias", 16_384, 0.050),
    ("dense1_weight", 67_108_864, 0.050),
    ("dense0_bias", 16_384, 0.130),
    ("dense0_weight", 150_994_944, 0.130),
    ("conv4_weight", 2_359_296, 0.300),
    ("conv3_weight", 3_538_944, 0.300),
    ("conv2_weight", 2_654_208, 0.300),
    ("conv1_weight", 1_228_800, 0.310),
    ("conv0_weight", 92_928, 0.310),
]


def costs(**values):
    """A calibration with these costs and nothing uncertain."""
    calibration = Calibration.prior()
    entries = dict(calibration.entries)
    for name, value in values.items():
        entries[name] = dataclasses.replace(entries[name], value=value)
    return dataclasses.replace(calibration, entries=entries, fitted_names=[], covariance=[], model_error=0.02)


def probe_of(scenario, counts=(0, 1, 2, 4), sizes=(256 << 10, 4 << 20, 32 << 20)):
    """What a lane probe of this scenario would measure, without noise."""
    sites = Sites.of(scenario.cluster, scenario.parameters.wire_efficiency)
    hosts = len(scenario.cluster.hosts)
    rows = []
    for aux in counts:
        for size in sizes:
            p = scenario.parameters
            legs = lane_legs(sites, p, size, aux) if aux else stock_legs(sites, p, size, size // 4)
            wire = 2 * (hosts - 1) / hosts * size
            horovod_s = p.enqueue_s + 530e-6 + p.bucket_s + p.tensor_s + p.control_round_s + 50e-6
            rows.append(
                ProbeRow(
                    aux,
                    size,
                    [horovod_s + alone_s(legs, sites, p)] * 4,
                    2 * size * p.copy_s_per_byte if aux else None,
                    wire * p.lane_s_per_byte if aux else None,
                )
            )
    return LaneProbe(hosts, 1, rows)


@pytest.fixture
def alexnet():
    index = {name: number for number, name in enumerate(sorted(row[0] for row in ALEXNET))}
    tensors = tuple(
        GradientTensor(name, name.split("_")[0], size, "float32", ready, index[name])
        for name, size, ready in ALEXNET
    )
    return Workload("alexnet", tensors, 0.15, 0.32, 0.12, batch_per_rank=4)


@pytest.fixture
def lab():
    """Two hosts of one core, NIC 4 Gbit/s, 1 Gbit/s a flow."""
    return Cluster.star(2, cores=1, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)


@pytest.fixture
def demo(alexnet, lab):
    return Scenario(
        alexnet,
        lab,
        costs(lane_s_per_byte=1.2e-9, copy_s_per_byte=0.4e-9, stock_s_per_byte=1.1e-9),
    )


@pytest.fixture
def probe(demo):
    return probe_of(demo)


@pytest.fixture
def measured_probe():
    """The function that makes the probe of any scenario."""
    return probe_of


@pytest.fixture
def known_costs():
    """The function that makes a calibration with given costs."""
    return costs
