import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.cluster_file import load_cluster

TWO_RACKS = """
flow_cap = "5 Gbit/s"
loss = 0.0001

[hosts]
a = { cores = 16 }
b = { cores = 16, speed = 0.8, ranks = 2 }
c = { cores = 4, memory = "20 GB/s" }

[switches]
left = {}
right = {}

[[links]]
between = ["a", "left"]
rate = "25 Gbit/s"
latency = "10 us"

[[links]]
between = ["b", "left"]
rate = "25 Gbit/s"
latency = "10 us"
background = "10 Gbit/s"

[[links]]
between = ["c", "right"]
rate = "10 Gbit/s"
latency = "10 us"

[[links]]
between = ["left", "right"]
rate = "40 Gbit/s"
latency = "5 us"
"""


def written(tmp_path, text):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return path


def test_hosts_switches_and_links_are_read(tmp_path):
    cluster = load_cluster(written(tmp_path, TWO_RACKS))
    assert [(host.name, host.ranks, host.speed) for host in cluster.hosts] == [
        ("a", 1, 1.0),
        ("b", 2, 0.8),
        ("c", 1, 1.0),
    ]
    assert cluster.ranks == 4 and not cluster.is_uniform
    assert cluster.latency_s("a", "c") == pytest.approx(25e-6)
    assert dict(cluster.links())["b", "left"] == 15e9
    assert cluster.hosts[2].memory_bytes_per_s == 20e9


@pytest.mark.parametrize(
    "change,words",
    [
        (('rate = "40 Gbit/s"', 'rate = "fast"'), "link between left and right: rate 'fast'"),
        (('between = ["left", "right"]', 'between = ["left", "middle"]'), "no host or switch 'middle'"),
        (("speed = 0.8", "speed = -1"), "host b: speed is -1"),
        (("speed = 0.8", 'colour = "red"'), "host b: 'colour' is not known"),
        (('background = "10 Gbit/s"', 'background = "30 Gbit/s"'), "background from 0 to below it"),
        (("loss = 0.0001", "loss = 2"), "loss is 2"),
        (("[switches]", "[towers]"), "'towers' is not known"),
        (("ranks = 2", "ranks = 1.5"), "must be a whole number"),
        (('flow_cap = "5 Gbit/s"', "flow_cap ="), "cannot read cluster"),
        (('flow_cap = "5 Gbit/s"', 'lane_caps = "1 Gbit/s"'), "must be a list of up to 64 rates"),
        (('flow_cap = "5 Gbit/s"', 'lane_caps = ["0 bit/s"]'), "lane caps are .* each must be above 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, words):
    with pytest.raises(UserError, match=words):
        load_cluster(written(tmp_path, TWO_RACKS.replace(*change)))


def test_an_unreachable_host_is_refused(tmp_path):
    with pytest.raises(UserError, match="do not all reach"):
        load_cluster(
            written(
                tmp_path,
                TWO_RACKS.replace(
                    '[[links]]\nbetween = ["left", "right"]\nrate = "40 Gbit/s"\nlatency = "5 us"\n', ""
                ),
            )
        )
