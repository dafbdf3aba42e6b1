import pytest
from vsketchdlc.validation.lab import Lab, LabSpec


@pytest.fixture(scope="module")
def lab(lab_rights, tmp_path_factory):
    """Two hosts, 1 Gbit/s, 250 Mbit/s per flow; the test run's temporary folders are shared."""
    spec = LabSpec(hosts=2, nic_bits_per_s=1e9, flow_cap_bits_per_s=250e6)
    with Lab(spec, shared=[tmp_path_factory.getbasetemp()]) as running:
        yield running


@pytest.fixture
def say(lab):
    """What a shell line prints on a host, without the newline at its end."""

    def run(host, line, **more):
        return lab.run(host, ["sh", "-c", line], check=True, capture_output=True, **more).stdout.rstrip("\n")

    return run
