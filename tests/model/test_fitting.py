import dataclasses

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.choice import choose
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.recorded import recorded_scenario, replay_prediction
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.timeline import write_simulated_trace
from vsketchdlc.tracer.trace import write_trace


@pytest.fixture
def trace(demo, tmp_path):
    """Eight drawn steps of AlexNet in the lab under stock Horovod."""
    return write_simulated_trace(demo, tmp_path / "trace", steps=8, seed=1, noise=0.05)


def test_a_trace_and_a_probe_predict_every_lane_count(demo, trace, probe):
    calibration = calibrate(trace, probe)
    recorded = recorded_scenario(trace, calibration)
    predictions = [predict(recorded.replaced(aux=aux), intervals=False) for aux in range(7)]
    truth = [simulate_step(demo.replaced(aux=aux)).step_s for aux in range(7)]
    errors = [abs(p.step_s / t - 1) for p, t in zip(predictions, truth, strict=True)]
    assert sum(errors) / len(errors) < 0.05 and max(errors) < 0.08
    regret = truth[choose(predictions).aux] / min(truth) - 1
    assert regret < 0.02


def test_what_the_data_do_not_say_is_listed_and_keeps_its_prior(trace, probe):
    alone, both = calibrate(trace), calibrate(trace, probe)
    for name in ("lane_s_per_byte", "copy_s_per_byte", "nic_bits_per_s"):
        assert not alone.entries[name].identified
        assert name in alone.notes[0]
        assert both.entries[name].identified
    assert alone.entries["lane_s_per_byte"].source.startswith("prior")
    assert "probe of the lanes" in both.entries["lane_s_per_byte"].source


def test_the_costs_come_back(demo, trace, probe):
    calibration = calibrate(trace, probe)
    truth = {"flow_cap_bits_per_s": 1e9, "nic_bits_per_s": 4e9}
    for name in ("lane_s_per_byte", "copy_s_per_byte"):
        truth[name] = getattr(demo.parameters, name)
    for name, value in truth.items():
        assert calibration.value(name) == pytest.approx(value, rel=0.05), name


def test_compute_is_freed_from_the_contention_of_its_run(demo, trace, probe):
    recorded = recorded_scenario(trace, calibrate(trace, probe)).workload
    # Backward took 0.42 s beside stock communication; alone it takes 0.32.
    assert recorded.backward_s == pytest.approx(demo.workload.backward_s, rel=0.05)
    assert recorded.update_s == pytest.approx(demo.workload.update_s, rel=0.05)
    assert recorded.forward_s == pytest.approx(demo.workload.forward_s, rel=0.03)


@pytest.mark.parametrize("aux", [0, 3])
def test_a_recorded_trace_replays_its_own_step_time(demo, tmp_path, aux):
    trace = write_simulated_trace(demo.replaced(aux=aux), tmp_path / "t", steps=8, seed=3, noise=0.05)
    steps = trace.step_times()
    steps = steps[steps["step"] >= 1]
    recorded = float((steps["t_end_ns"] - steps["t_start_ns"]).median()) * 1e-9
    assert replay_prediction(trace).step_s == pytest.approx(recorded, rel=0.05)


def test_too_few_steps_are_refused(demo, tmp_path):
    trace = write_simulated_trace(demo, tmp_path / "t", steps=1)
    with pytest.raises(UserError, match="record at least 4 steps"):
        calibrate(trace)


def test_a_trace_without_marks_as_from_a_horovod_timeline_is_enough(demo, trace, probe, tmp_path):
    # What such a file has: gradients of all ranks, the rest of rank 0 only, sizes only once they are reduced.
    kept = trace.events(kinds=["ready", "negotiate", "fuse_in", "allreduce", "fuse_out", "done"])
    kept = kept[(kept["rank"] == 0) | (kept["kind"] == "ready")].copy()
    kept.loc[kept["kind"] == "ready", "bytes"] = None
    meta = dataclasses.replace(trace.meta, source="imported:horovod-timeline", tensors=[])
    timeline = write_trace(tmp_path / "timeline", meta, kept)
    marked, inferred = calibrate(trace, probe), calibrate(timeline, probe, cores=1.0)
    assert inferred.model_error > marked.model_error
    assert any("no forward or backward" in note for note in inferred.notes)
    for aux in (0, 4):
        wanted = simulate_step(demo.replaced(aux=aux)).step_s
        found = predict(recorded_scenario(timeline, inferred).replaced(aux=aux))
        assert found.step_s == pytest.approx(wanted, rel=0.10)
        assert found.low_s < wanted < found.high_s


def test_gradients_that_a_timeline_shows_late_are_not_taken_for_a_long_backward(demo, tmp_path):
    # Horovod's own timeline shows a gradient when its thread sees it: here after the allreduce of dense0.
    trace = write_simulated_trace(demo, tmp_path / "t", steps=6, seed=2, noise=0.02)
    kept = trace.events(kinds=["ready", "allreduce", "fuse_in", "fuse_out", "done", "negotiate"])
    kept = kept[(kept["rank"] == 0) & (kept["step"] >= 0)].copy()
    agreed = kept[(kept["kind"] == "negotiate") & kept["tensor"].notna()].set_index(["step", "tensor"])
    late = kept["kind"] == "ready"
    seen = agreed["t_end_ns"].reindex(list(zip(kept["step"][late], kept["tensor"][late], strict=True)))
    for column in ("t_start_ns", "t_end_ns"):
        kept.loc[late, column] = seen.to_numpy() - 50_000
    meta = dataclasses.replace(trace.meta, source="imported:horovod-timeline", tensors=[], hosts=[])
    timeline = write_trace(tmp_path / "timeline", meta, kept)
    costs = calibrate(timeline, cores=1.0)
    assert costs.hosts == 2 and any("a host of its own" in note for note in costs.notes)
    recorded = recorded_scenario(timeline, costs)
    assert recorded.workload.backward_s < 2 * demo.workload.backward_s
    assert 0 < recorded.workload.unknown_s < 1.5 * demo.workload.backward_s
    found, wanted = predict(recorded.replaced(aux=2)), simulate_step(demo.replaced(aux=2)).step_s
    assert found.low_s < wanted < found.high_s
