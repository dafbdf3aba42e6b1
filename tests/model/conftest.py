import dataclasses

import pytest
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.recovery import simulated_probe
from vsketchdlc.model.scenario import Scenario
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
    return simulated_probe(demo)


@pytest.fixture
def measured_probe():
    """The function that makes the probe of any scenario."""
    return simulated_probe


@pytest.fixture
def known_costs():
    """The function that makes a calibration with given costs."""
    return costs
