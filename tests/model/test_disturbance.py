"""A trial that was not alone on its cores is told, and its predictions get wider intervals."""

import dataclasses
import json

import pandas as pd
import pytest
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.disturbance import disturbance
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.observations import observe
from vsketchdlc.model.timeline import write_simulated_trace
from vsketchdlc.model.workload import StepSpread
from vsketchdlc.tracer.trace import write_trace


@pytest.fixture
def quiet(demo, tmp_path):
    return write_simulated_trace(demo, tmp_path / "quiet", steps=8, seed=1)


def sampled(trace, folder, *, own, busy, waiting):
    """The same with samples of the cores of its two hosts, which are one machine of two cores."""
    processes = trace.query("select distinct process from events where rank is not null")["process"]
    rows = []
    for process in processes:
        rows += [
            (process, "host", "host_busy_cores", busy),
            (process, "host", "host_idle_cores", 2 - busy),
            (process, "process", "cpu_user_cores", own),
            (process, "process", "cpu_system_cores", 0.0),
            (process, "horovod", "cpu_user_cores", own),
            (process, "horovod", "run_queue_wait_cores", waiting),
        ]
    samples = pd.DataFrame(rows, columns=["process", "subject", "name", "value"]).assign(t_ns=0)
    hosts = [dataclasses.replace(host, machine=f"m/{number}") for number, host in enumerate(trace.meta.hosts)]
    return write_trace(folder, dataclasses.replace(trace.meta, hosts=hosts), trace.events(), samples)


def test_a_quiet_trial_is_not_accused(quiet, probe, tmp_path):
    assert disturbance(quiet, observe(quiet), probe) is None
    alone = sampled(quiet, tmp_path / "alone", own=0.9, busy=1.9, waiting=0.05)
    assert disturbance(alone, observe(alone), probe) is None


def test_other_programs_on_the_cores_are_seen_and_widen_the_interval(quiet, probe, tmp_path):
    crowded = sampled(quiet, tmp_path / "crowded", own=0.5, busy=2.0, waiting=0.6)
    calm, found = calibrate(quiet, probe), calibrate(crowded, probe)
    assert calm.disturbed is None and "other programs used 1 of 2 cores" in found.disturbed
    assert found.model_error > calm.model_error + 0.1
    # Where a core is idle nobody is in the way.
    spare = sampled(quiet, tmp_path / "spare", own=0.2, busy=1.2, waiting=0.6)
    assert calibrate(spare, probe).disturbed is None


def test_uneven_steps_and_an_uneven_probe_are_signs(demo, quiet, probe, tmp_path):
    rough = dataclasses.replace(demo.workload, spread=StepSpread(compute=0.3, correlation=1.0))
    trace = write_simulated_trace(demo.replaced(workload=rough), tmp_path / "t", steps=8, seed=1)
    assert "steps of equal work" in disturbance(trace, observe(trace)).sentence
    rows = [dataclasses.replace(row, seconds=[1e-2, 2e-2, 4e-2]) for row in probe.rows]
    uneven = dataclasses.replace(probe, rows=rows)
    assert "of the probe varied" in disturbance(quiet, observe(quiet), uneven).sentence


def test_it_stands_in_the_file_and_older_files_are_read(quiet, probe, tmp_path):
    made = dataclasses.replace(calibrate(quiet, probe), disturbed="others ran")
    made.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json").disturbed == "others ran"
    older = json.loads((tmp_path / "c.json").read_text())
    older["format_version"] = 1
    del older["disturbed"]
    assert Calibration.from_json(older).disturbed is None
