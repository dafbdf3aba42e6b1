"""A recorded run goes through the model and comes out as it was.

tests/data/replay/alexnet-two-hosts is a trace of eight steps of AlexNet under stock Horovod between two lab
hosts (NIC 4 Gbit/s, 1 Gbit/s per flow), with the lane probe made right after it.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from vsketchdlc.cli import app
from vsketchdlc.errors import UserError
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.probe import LaneProbe
from vsketchdlc.replay.offline import phase_totals, recorded_step_s, replay_offline
from vsketchdlc.tracer.trace import Trace

DATA = Path(__file__).parents[1] / "data" / "replay"


@pytest.fixture(scope="module")
def recorded():
    return Trace.open(DATA / "alexnet-two-hosts")


@pytest.fixture(scope="module")
def calibration(recorded):
    return calibrate(recorded, LaneProbe.load(DATA / "alexnet-two-hosts-probe.json"))


def test_a_recorded_run_replays_in_its_own_step_time(recorded, calibration):
    replay = replay_offline(recorded, calibration)
    assert replay.same_settings
    assert recorded_step_s(recorded) == pytest.approx(4.38, abs=0.01)
    assert abs(replay.error) < 0.05


def test_without_a_calibration_the_trace_itself_is_enough(recorded):
    assert abs(replay_offline(recorded).error) < 0.05


def test_other_lane_counts_are_predictions_not_replays(recorded, calibration):
    replay = replay_offline(recorded, calibration, aux=4)
    assert not replay.same_settings
    assert replay.prediction.step_s < 0.5 * replay.recorded_step_s


def test_the_replayed_run_is_a_trace_like_any_other(recorded, calibration, tmp_path):
    replay_offline(recorded, calibration, output=tmp_path / "replayed")
    replayed = Trace.open(tmp_path / "replayed")
    assert replayed.meta.source == "simulated"
    assert recorded_step_s(replayed) == pytest.approx(recorded_step_s(recorded), rel=0.05)
    assert replayed.query("select sum(bytes) as b from events where kind = 'done' and rank = 0 and step = 1")[
        "b"
    ][0] == pytest.approx(
        recorded.query("select sum(bytes) as b from events where kind = 'done' and rank = 0 and step = 3")[
            "b"
        ][0]
    )


def test_forward_backward_and_allreduce_last_as_long_as_recorded(recorded, calibration):
    phases = {phase.kind: phase for phase in replay_offline(recorded, calibration).phases}
    for kind in ("forward", "backward", "allreduce"):
        assert phases[kind].replayed_s == pytest.approx(phases[kind].recorded_s, rel=0.1), kind


def test_phase_totals_leave_out_control_calls(recorded):
    totals = phase_totals(recorded).set_index("kind")["seconds"]
    control = recorded.query("select count(*) as n from events where kind = 'negotiate' and tensor is null")[
        "n"
    ][0]
    assert control > 0
    assert totals["allreduce"] == pytest.approx(4.09, abs=0.05)


def test_the_command_answers_in_json():
    answer = CliRunner().invoke(app, ["replay", str(DATA / "alexnet-two-hosts"), "--json", "-"])
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    assert abs(data["error"]) < 0.05
    assert data["aux"] == 0


def test_what_is_not_a_trace_is_said_in_one_line(tmp_path):
    with pytest.raises(UserError, match="no trace at"):
        Trace.open(tmp_path / "nowhere")
