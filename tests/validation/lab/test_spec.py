import math
import os
from pathlib import Path

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.validation.lab import LabSpec

EXAMPLES = Path(__file__).parents[3] / "examples"


def read(tmp_path, text):
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return LabSpec.from_toml(path)


def test_a_file_says_only_what_differs(tmp_path):
    spec = read(tmp_path, 'nic = "1 Gbit/s"\nflow_cap = "250 Mbit/s"')
    assert (spec.hosts, spec.nic_bits_per_s, spec.flow_cap_bits_per_s) == (2, 1e9, 250e6)
    assert spec.names == ("h0", "h1")
    assert spec.describe() == "2 hosts, NIC 1 Gbit/s, 250 Mbit/s per flow"


def test_a_host_may_differ(tmp_path):
    spec = read(
        tmp_path,
        'hosts = 3\nnic = "1 Gbit/s"\n'
        '[host.h2]\nnic = "500 Mbit/s"\ncores = 2\nspeed = 0.25\nclock_offset = "-3 ms"',
    )
    assert spec.host("h0").nic_bits_per_s == 1e9
    slow = spec.host("h2")
    assert (slow.nic_bits_per_s, slow.quota_cores, slow.clock_offset_s) == (500e6, 0.5, -0.003)
    assert not spec.uniform_nic


def test_racks_have_uplinks(tmp_path):
    spec = read(tmp_path, 'hosts = 4\nnic = "1 Gbit/s"\nrack_hosts = 2\nuplink = "500 Mbit/s"')
    assert (spec.rack_hosts, spec.uplink_bits_per_s) == (2, 500e6)
    assert spec.describe() == "4 hosts, NIC 1 Gbit/s, racks of 2 with uplinks of 500 Mbit/s"


def test_unlimited_is_no_limit(tmp_path):
    spec = read(tmp_path, 'nic = "unlimited"\nflow_cap = "unlimited"')
    assert spec.nic_bits_per_s == math.inf
    assert spec.flow_cap_bits_per_s is None


def test_cores_per_host_is_the_slowest_hosts_quota_or_a_share_of_the_machine():
    assert LabSpec(hosts=4).cores_per_host == (os.cpu_count() or 1) / 4
    uneven = LabSpec(hosts=2, cores=1, overrides={"h1": {"speed": 0.5}})
    assert uneven.cores_per_host == 0.5


def test_more_emulated_cores_than_real_ones_is_said():
    real = os.cpu_count() or 1
    crowded = LabSpec(hosts=2, cores=real)
    assert not crowded.trustworthy
    assert any("UNTRUSTWORTHY" in line for line in crowded.limits())
    assert LabSpec(hosts=2, cores=real / 2).trustworthy


def test_every_lab_says_what_it_cannot_show():
    said = " ".join(LabSpec(hosts=2).limits())
    assert "one machine" in said
    assert "charged to the sender" in said
    assert "throttle" in " ".join(LabSpec(hosts=2, cores=0.5).limits())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('bandwidth = "1 Gbit/s"', "unknown key 'bandwidth'; allowed are hosts, nic, flow_cap"),
        ("[host.h1]\nnics = 3", r"\[host.h1\]: unknown key 'nics'; allowed are nic"),
        ("[host.h7]\ncores = 1", "no host 'h7'; the hosts are h0, h1"),
        ("hosts = 0", "hosts must be between 1 and 64, got 0"),
        ("hosts = 2.5", "hosts must be a whole number"),
        ('hosts = "two"', "hosts must be a number, got 'two'"),
        ("nic = 4", "nic must be text with its unit"),
        ('nic = "4 GB"', "'4 GB' is not understood"),
        ('nic = "1 kbit/s"', "nic of h0 in bit/s must be between 1e.06"),
        ('nic = "1 Gbit/s"\nflow_cap = "2 Gbit/s"', "flow_cap of h0 is above its nic"),
        ("cores = 0", "cores of h0 must be between"),
        ("cores = 1\nspeed = 2", "speed of h0 must be between 0.05 and 1"),
        ("speed = 0.5", "speed of h0 needs cores too"),
        ("cores = true", "cores must be a number, got True"),
        ("cpus = [9999]", "core 9999 is not on this machine"),
        ("cpus = 1", "cpus must be a list of core numbers"),
        ("clock_offset = 3", "clock_offset must be text with its unit"),
        ('uplink = "1 Gbit/s"', "uplink needs rack_hosts too"),
        ("rack_hosts = 0", "rack_hosts must be between 1 and 64"),
        ("host = 3", "'host' must be tables"),
        ("hosts = ", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_the_remedy(tmp_path, text, complaint):
    with pytest.raises(UserError, match=complaint) as caught:
        read(tmp_path, text)
    assert "lab.toml" in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_a_missing_file_and_a_file_that_is_no_text(tmp_path):
    with pytest.raises(UserError, match="cannot read lab file"):
        LabSpec.from_toml(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        LabSpec.from_toml(tmp_path / "binary.toml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("lab-*.toml")), ids=lambda path: path.name)
def test_the_examples_are_valid(path):
    assert LabSpec.from_toml(path).hosts >= 2
