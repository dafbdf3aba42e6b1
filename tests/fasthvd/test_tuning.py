"""Tuning's own arithmetic, its memory, its knobs; its live run in the lab is test_tuning_live.py."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.fasthvd import tuning, tuning_cache
from vsketchdlc.fasthvd.flow_probe import FlowProbe, FlowRate
from vsketchdlc.fasthvd.host_facts import HostFacts
from vsketchdlc.fasthvd.knobs import Knobs, best_knobs
from vsketchdlc.fasthvd.probe import lane_counts
from vsketchdlc.fasthvd.probe_worker import ProbePlan
from vsketchdlc.fasthvd.trial import disturbed
from vsketchdlc.fasthvd.tune_command import _fraction
from vsketchdlc.fasthvd.tuning import TuningWishes, _quiet_trial, answer_for, default_aux_max
from vsketchdlc.fasthvd.tuning_answer import PredictedStep, TuningAnswer, command_of
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.scenario import Scenario
from vsketchdlc.tracer.trace import Trace

DATA = Path(__file__).parents[1] / "data" / "replay"
COMMAND = ["mpirun", "-np", "2", "python", "train.py"]


def answer(aux, seconds=60.0, knobs=None):
    steps = [PredictedStep(n, s, s, s, s, s, 0.0) for n, s in enumerate((2.0, 1.5, 1.0))]
    return TuningAnswer(aux, "because", steps, seconds, "/kept", knobs)


def test_what_tuning_cost_is_earned_back_after_so_many_steps():
    assert answer(2).gain_s == 1.0
    assert answer(2).payback_steps == 61
    assert answer(0).payback_steps is None


def test_the_probe_visits_powers_of_two_and_both_ends():
    assert lane_counts(6) == (0, 1, 2, 4, 6)
    assert lane_counts(4) == (0, 1, 2, 4)
    assert lane_counts(1) == (0, 1)


def test_the_plan_survives_the_environment():
    plan = ProbePlan((0, 1, 2), (1 << 20,), 3, 2.5, "/some where/probe.json")
    text = plan.to_json()
    assert ProbePlan.from_json(text) == plan
    assert ";" not in text  # Open MPI separates the variables of its list with it


def test_more_lanes_than_twice_the_cores_only_take_turns():
    assert default_aux_max(1) == 4
    assert default_aux_max(4) == 8
    assert default_aux_max(64) == 16
    assert default_aux_max(None) == 8


@pytest.mark.parametrize(("text", "value"), [("3%", 0.03), ("0.05", 0.05), ("0", 0.0)])
def test_a_gain_is_a_percentage_or_a_share(text, value):
    assert _fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "-1%", "100%", "nan"])
def test_an_impossible_gain_is_refused(text):
    with pytest.raises(UserError, match="--min-gain"):
        _fraction(text)


def flows(one=0.95e9, name="a"):
    rates = [FlowRate(1, one, 0, 0.1, 1e-3, name), FlowRate(4, 3.8e9, 0, 0.4, 1e-3, name)]
    return FlowProbe([HostFacts(name, 4, 4, None, ()), HostFacts("b", 4, 4, None, ())], rates)


def test_an_answer_is_found_again_as_it_was(tmp_path):
    there = {"XDG_CACHE_HOME": str(tmp_path)}
    kept = answer(2, knobs=Knobs(16 << 20, 1e-3))
    assert tuning_cache.save("x", "today", flows(), kept, there) is None
    assert tuning_cache.load("x", there).answer == kept
    assert tuning_cache.load("y", there) is None


def test_it_counts_while_the_flows_are_what_they_were(tmp_path):
    there = {"XDG_CACHE_HOME": str(tmp_path)}
    tuning_cache.save("x", "today", flows(), answer(2), there)
    entry = tuning_cache.load("x", there)
    assert entry.disagreement(flows(1.0e9)) is None
    assert entry.disagreement(flows(0.5e9)) == "1 flow got 950 Mbit/s then, 500 Mbit/s now"


def test_a_cache_that_cannot_be_written_loses_no_tuning(tmp_path):
    (tmp_path / "file").write_text("")
    said = tuning_cache.save("x", "today", flows(), answer(2), {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert said.startswith("the tuning is not kept")


def test_damaged_memory_is_no_memory(tmp_path):
    there = {"XDG_CACHE_HOME": str(tmp_path)}
    tuning_cache.save("x", "today", flows(), answer(2), there)
    file = tuning_cache.cache_folder(there) / "x.json"
    data = json.loads(file.read_text())
    for damaged in ("[", "{}", json.dumps({**data, "answer": {"format_version": 9}})):
        file.write_text(damaged)
        assert tuning_cache.load("x", there) is None


def test_another_job_or_cluster_is_tuned_on_its_own(tmp_path):
    script, module = tmp_path / "train.py", tmp_path / "model.py"
    script.write_text("train()")
    module.write_text("small()")
    job = ["mpirun", "python", str(script)]

    def name(command=job, probe=None, wishes=None, environment=None):
        return tuning_cache.fingerprint(command, probe or flows(), wishes or {}, environment or {})

    same = name()
    assert name() == same
    assert name(environment={"HOME": "/x"}) == same
    others = [
        name([*job, "--batch", "8"]),
        name(probe=flows(name="c")),
        name(wishes={"aux_max": 3}),
        name(environment={"HOROVOD_CYCLE_TIME": "5"}),
    ]
    module.write_text("large()")
    others.append(name())
    assert len({same, *others}) == 6


def bert():
    """A network whose gradients come in many pieces, so that Horovod's knobs matter."""
    cluster = Cluster.star(4, cores=8, nic_bits_per_s=10e9, flow_cap_bits_per_s=5e9)
    return Scenario(catalogue_workload("resnet50", "v100"), cluster, Calibration.prior())


def test_knobs_are_looked_for_at_the_best_counts():
    asked = []

    def step_s(scenario):
        asked.append(scenario)
        better = scenario.fusion_bytes == 16 << 20 and scenario.cycle_s == 2.5e-3
        return 1.0 + abs(scenario.aux - 3) - (0.5 if better else 0.0)

    assert best_knobs(bert(), range(6), step_s) == Knobs(16 << 20, 2.5e-3)
    assert {one.aux for one in asked[6:]} == {2, 3, 4}


def test_the_recorded_knobs_stay_where_others_gain_nothing():
    scenario = bert()
    assert best_knobs(scenario, range(3), lambda one: 1.0) == Knobs(scenario.fusion_bytes, scenario.cycle_s)


def test_all_knobs_are_never_worse_than_lanes_alone(tmp_path):
    wishes = TuningWishes(aux_max=2)
    alone = answer_for(bert(), tmp_path, wishes, [], lambda: 1.0)
    together = answer_for(bert(), tmp_path, dataclasses.replace(wishes, all_knobs=True), [], lambda: 1.0)
    assert alone.knobs is None
    assert together.expected.step_s <= alone.expected.step_s
    assert together.predicted[0] == alone.predicted[0]  # stock is stock


def test_the_next_run_is_told_as_a_command():
    told = command_of(answer(2, knobs=Knobs(16 << 20, 2.5e-3)), COMMAND)
    assert " ".join(told) == (
        "vsketchdlc run --aux 2 --fusion-threshold-mb 16 --cycle-time-ms 2.5 -- mpirun -np 2 python train.py"
    )
    assert command_of(answer(0), COMMAND)[:4] == ["vsketchdlc", "run", "--aux", "0"]


def test_a_quiet_trial_is_taken_and_a_disturbed_one_repeated_once(tmp_path, monkeypatch):
    said, notes, judged = [], [], iter(["somebody else", None])

    def trial(folder, steps):
        shutil.copytree(DATA / "alexnet-two-hosts", folder)
        return Trace.open(folder)

    assert disturbed(Trace.open(DATA / "alexnet-two-hosts")) is None
    monkeypatch.setattr(tuning, "disturbed", lambda trace: next(judged))
    trace = _quiet_trial(trial, tmp_path / "trace", 8, said.append, notes)
    assert trace.path == tmp_path / "trace"
    assert said[-1] == "somebody else: once more"
    assert notes == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace"]


def test_two_disturbed_trials_are_said(tmp_path, monkeypatch):
    def trial(folder, steps):
        shutil.copytree(DATA / "alexnet-two-hosts", folder)
        return Trace.open(folder)

    notes = []
    monkeypatch.setattr(tuning, "disturbed", lambda trace: "somebody else")
    _quiet_trial(trial, tmp_path / "trace", 8, lambda line: None, notes)
    assert "trust the prediction less" in notes[0]
