"""`--set`, `--scale`, `--by` and `--diff`: a replay with something changed, and how it is shown."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner
from vsketchdlc.cli import app
from vsketchdlc.errors import UserError
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.replay.live import scaled
from vsketchdlc.replay.settings import CALIBRATION, CLUSTER, KNOBS, WORKLOAD, with_settings

TRACE = Path(__file__).parents[1] / "data" / "replay" / "alexnet-two-hosts"


@pytest.fixture
def scenario():
    return Scenario(catalogue_workload("alexnet"), Cluster.star(2, cores=4, flow_cap_bits_per_s=1e9))


def test_knobs_cluster_workload_and_costs_are_set_by_their_names(scenario):
    changed = with_settings(
        scenario,
        [
            *("aux=3", "cycle_s=5ms", "fusion_bytes=16MiB", "hosts=4", "flow_cap_bits_per_s=2Gbit/s"),
            *("forward_s=10ms", "device=cpu", "lane_call_s=1ms", "cached=false"),
        ],
    )
    assert (changed.aux, changed.cycle_s, changed.fusion_bytes) == (3, 0.005, 16 << 20)
    assert len(changed.cluster.hosts) == 4
    assert changed.cluster.hosts[0].cores == 4
    assert changed.cluster.flow_cap_bits_per_s == 2e9
    assert (changed.workload.forward_s, changed.workload.device) == (0.01, "cpu")
    assert changed.parameters.lane_call_s == 0.001
    assert changed.cached is False


def test_a_bare_number_is_in_the_unit_of_its_name(scenario):
    assert with_settings(scenario, ["nic_bits_per_s=5e9"]).cluster.nic_bits_per_s("h0") == 5e9
    assert with_settings(scenario, ["flow_cap_bits_per_s=none"]).cluster.flow_cap_bits_per_s == math.inf


def test_a_longer_backward_moves_its_gradients_along(scenario):
    twice = with_settings(scenario, [f"backward_s={2 * scenario.workload.backward_s}"])
    for before, after in zip(scenario.workload.tensors, twice.workload.tensors, strict=True):
        assert after.ready_s == pytest.approx(2 * before.ready_s)


def test_nothing_set_is_nothing_changed(scenario):
    assert with_settings(scenario, []) == scenario


def test_every_key_that_is_offered_is_understood(scenario):
    special = {
        "device": "gpu",
        "cached": "true",
        "blocking": "true",
        "loss": "0.01",
        "wire_efficiency": "0.9",
    }
    for key in (*KNOBS, *CLUSTER, *WORKLOAD, *CALIBRATION):
        large = key.endswith(("_bytes", "_bits_per_s"))
        value = special.get(key, "2048" if large else "2")
        with_settings(scenario, [f"{key}={value}"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("speed_of_light=2", "it knows aux, fusion_bytes"),
        ("aux", "write key=value"),
        ("aux=two", "whole number"),
        ("aux=99", "between 0 and 64"),
        ("cycle_s=1 fortnight", "--set cycle_s"),
        ("device=abacus", "cpu or gpu"),
        ("cached=perhaps", "true or false"),
        ("lane_call_s=0", "above 0"),
        ("hosts=0", "between 1"),
    ],
)
def test_what_cannot_be_set_is_one_line(scenario, text, says):
    with pytest.raises(UserError, match=says):
        with_settings(scenario, [text])


def test_scaled_gradients_take_the_optimizer_along():
    work = catalogue_workload("alexnet")
    half = scaled(work, 0.5)
    assert half.gradient_bytes == pytest.approx(work.gradient_bytes / 2, rel=1e-3)
    assert half.update_s == pytest.approx(work.update_s / 2)
    assert half.backward_s == work.backward_s
    for factor in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="--scale"):
            scaled(work, factor)


def test_both_runs_are_in_one_file_for_perfetto_and_in_one_page(tmp_path):
    words = ["replay", str(TRACE), "--diff", str(tmp_path / "both"), "--by", "tensor"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    slices = json.loads((tmp_path / "both.json").read_text())
    names = {s["args"]["name"] for s in slices if s.get("name") == "process_name"}
    for host in ("recorded h0", "recorded h1", "replayed h0", "replayed h1"):
        assert any(host in name for name in names), names
    page = (tmp_path / "both.html").read_text()
    assert "recorded and replayed" in page
    assert "horovod_allreduce.11" in page
    assert "horovod_allreduce.11" in answer.stdout


def test_steps_are_listed_beside_the_replayed_one():
    answer = CliRunner().invoke(app, ["replay", str(TRACE), "--by", "step", "--set", "aux=4"])
    assert answer.exit_code == 0, answer.output
    assert "single steps are expected from" in answer.stdout
    assert "with 4 lanes and the settings asked for" in answer.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give a trace's folder or --model"),
        (["--model", "vgg16"], "nothing is recorded of --model vgg16"),
        ([str(TRACE), "--hosts", "a,b"], "add --live"),
        ([str(TRACE), "--live", "--set", "aux=1"], "belong to the simulator"),
        ([str(TRACE), "--live"], "needs a launcher or --hosts"),
        ([str(TRACE), "--live", "--hosts", ","], "names no host"),
        ([str(TRACE), "--live", "--hosts", "a", "--", "mpirun"], "not both"),
        (["--model", "hal9000", "--live", "--hosts", "a"], "neither a trace's folder nor a network"),
        ([str(TRACE), "--live", "--compute", "think", "--hosts", "a"], "not one of sleep, spin, mxnet"),
    ],
)
def test_options_that_do_not_fit_together(words, says):
    answer = CliRunner().invoke(app, ["replay", *words])
    assert isinstance(answer.exception, UserError), answer.output
    assert says in str(answer.exception)
