"""Suites: what their files say, and how a wrong one is refused."""

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.validation.place import Place
from vsketchdlc.validation.plan import suite_seconds
from vsketchdlc.validation.suite import load_suite

SMALL = """
counts = [0, 2]
[training.a]
network = "alexnet"
image = 96
[place.two]
hosts = 2
nic = "4 Gbit/s"
flow_cap = "1 Gbit/s"
[calibration.a]
place = "two"
[[scenario]]
training = "a"
place = "two"
"""


def suite(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_suite(str(path))


def test_a_scenario_takes_what_it_does_not_say_from_the_top_of_the_file(tmp_path):
    (case,) = suite(tmp_path, SMALL).cases
    assert (case.name, case.counts, case.steps, case.visits) == ("a @ two", (0, 2), 10, 2)
    assert case.calibration.training is case.training
    assert not case.elsewhere


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("counts = [0, 2]", "counts = [1, 2]", "with 0 among them"),
        ("counts = [0, 2]", "counts = [0, 65]", "from 0 to 64"),
        ("counts = [0, 2]", "numbers = [0, 2]", "unknown key 'numbers'"),
        ('place = "two"\n[[', 'place = "three"\n[[', "there is no [place.three]; there are two"),
        ("image = 96", "image = 4", "whole number from 8"),
        ("hosts = 2", "hosts = 2\nranks = [1]", "ranks must be 2 numbers"),
        ('nic = "4 Gbit/s"', 'nic = "4 parsec"', "[place.two]: lab: nic"),
        ("hosts = 2", 'hosts = 2\nslow_lane = "2 Gbit/s"', "below the place's flow_cap"),
        ("[[scenario]]", "[scenario]", "no [[scenario]]"),
        ("[place.two]", "[place.two", "not valid TOML"),
    ],
)
def test_a_wrong_suite_is_one_line_that_names_the_place(tmp_path, old, new, said):
    with pytest.raises(UserError, match=r"suite .*mine\.toml") as refused:
        suite(tmp_path, SMALL.replace(old, new, 1))
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_calibration_of_another_network_is_refused(tmp_path):
    other = (
        SMALL
        + '[training.b]\nnetwork = "vgg16"\n[[scenario]]\ntraining = "b"\nplace = "two"\ncalibration = "a"\n'
    )
    with pytest.raises(UserError, match="another network"):
        suite(tmp_path, other)


def test_the_full_suite_is_the_promised_table():
    full = load_suite("full")
    assert full.points >= 60
    assert {case.place.spec.hosts for case in full.cases} == {2, 3, 4}
    assert {case.training.network for case in full.cases} == {"alexnet", "vgg16", "resnet50_v1"}
    assert len({case.place.nic_and_cap() for case in full.cases}) >= 3
    assert len({case.place.host(0).speed for case in full.cases}) >= 2
    assert all({0, 1, 2, 4, 6} <= set(case.counts) and case.visits >= 2 for case in full.cases)
    assert all(case.visits * case.steps >= 20 for case in full.cases)
    assert suite_seconds(full) < 100 * 60


@pytest.mark.parametrize(("name", "minutes"), [("smoke", 2), ("quick", 10), ("invalidate", 45)])
def test_the_other_suites_can_be_read_and_fit_their_time(name, minutes):
    assert suite_seconds(load_suite(name)) < 60 * minutes


def test_the_model_sees_the_place_as_it_was_built():
    two = Place.from_table("two", {"hosts": 2, "nic": "4 Gbit/s", "flow_cap": "1 Gbit/s"})
    four = Place.from_table(
        "four", {"hosts": 4, "nic": "8 Gbit/s", "flow_cap": "1 Gbit/s", "cores": 1, "speed": 0.5}
    )
    slow = Place.from_table("slow", {"hosts": 2, "ranks": [2, 1], "host": {"h1": {"nic": "1 Gbit/s"}}})
    cluster = four.cluster(Calibration.prior(), two)
    assert cluster.is_uniform and len(cluster.hosts) == 4
    assert (cluster.hosts[3].cores, cluster.hosts[3].speed) == (1, 0.5)
    assert cluster.nic_bits_per_s("h0") == 8e9
    uneven = slow.cluster(Calibration.prior(), two)
    assert not uneven.is_uniform
    assert [host.ranks for host in uneven.hosts] == [2, 1]
    assert uneven.nic_bits_per_s("h1") == 1e9


def test_one_slow_flow_is_the_first_lanes():
    lab = {"hosts": 2, "nic": "4 Gbit/s", "flow_cap": "1 Gbit/s"}
    two = Place.from_table("two", lab)
    slow = Place.from_table("slow", {**lab, "slow_lane": "500 Mbit/s"})
    cluster = slow.cluster(Calibration.prior(), two)
    assert cluster.lane_cap_bits_per_s(0) == 500e6
    assert cluster.lane_cap_bits_per_s(1) == cluster.flow_cap_bits_per_s
    assert "the first lane 500 Mbit/s" in slow.describe()
