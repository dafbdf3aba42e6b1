"""The user's launch command gets its ranks' variables in the way its launcher understands."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.launcher import NESTED_VARIABLE, LauncherKind, RankEnvironment, prepare, run

RANKS = RankEnvironment(preload=("/lib/a.so",), python_path=("/hook",), variables={"FASTHVD_AUX": "3"})


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Make an executable that answers --version as an MPI launcher does."""

    def make(name, version=""):
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\necho '{version}'\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return name

    return make


def test_open_mpi_ranks_get_an_environment_list(program):
    launch = prepare(
        [program("mpirun", "mpirun (Open MPI) 5.0.11"), "-np", "2", "a.out"], RANKS, {"HOME": "/h"}
    )
    assert launch.kind is LauncherKind.OPEN_MPI
    assert launch.command == ["mpirun", "-np", "2", "a.out"]
    assert launch.environment["OMPI_MCA_mca_base_env_list"].split(";") == [
        "FASTHVD_AUX=3",
        "LD_PRELOAD=/lib/a.so",
        "PYTHONPATH=/hook",
    ]
    assert "LD_PRELOAD" not in launch.environment


def test_open_mpi_refuses_list_and_x_together_so_x_it_is(program):
    launch = prepare([program("mpirun", "Open MPI"), "-x", "FOO", "a.out"], RANKS, {"PYTHONPATH": "/mine"})
    assert launch.command[:7] == [
        "mpirun", "-x", "FASTHVD_AUX=3", "-x", "LD_PRELOAD=/lib/a.so", "-x", "PYTHONPATH=/hook:/mine",
    ]  # fmt: skip
    assert "OMPI_MCA_mca_base_env_list" not in launch.environment


def test_a_list_of_the_users_own_on_the_command_line_is_added_to(program):
    own = ["--mca", "mca_base_env_list", "FOO=1"]
    launch = prepare([program("mpirun", "Open MPI"), *own, "a.out"], RANKS, {})
    assert launch.command[3] == "FOO=1;FASTHVD_AUX=3;LD_PRELOAD=/lib/a.so;PYTHONPATH=/hook"
    assert "OMPI_MCA_mca_base_env_list" not in launch.environment


def test_mpich_ranks_get_genv(program):
    launch = prepare([program("mpiexec", "HYDRA build details"), "-n", "2", "a.out"], RANKS, {})
    assert launch.kind is LauncherKind.MPICH
    assert launch.command[1:4] == ["-genv", "FASTHVD_AUX", "3"]


def test_horovodrun_hands_it_to_mpirun(program):
    program("mpirun", "mpirun (Open MPI) 4.1.8")
    launch = prepare([program("horovodrun"), "-np", "2", "--mpi-args=--bind-to none", "a.out"], RANKS, {})
    assert launch.kind is LauncherKind.HOROVODRUN_MPI
    assert launch.command[3].startswith("--mpi-args=--bind-to none -x FASTHVD_AUX=3")


def test_horovodrun_gets_the_words_that_open_mpi_5_understands(program):
    program("mpirun", "mpirun (Open MPI) 5.0.11")
    launch = prepare([program("horovodrun"), "-np", "2", "a.out"], RANKS, {})
    assert launch.command[1] == "--binding-args=--bind-to none --map-by slot"
    own = prepare([program("horovodrun"), "--binding-args", "--bind-to core", "-np", "2", "a.out"], RANKS, {})
    assert "--binding-args=--bind-to none --map-by slot" not in own.command


def test_a_nested_command_hands_its_part_down_and_the_inner_one_comes_first(program):
    outer = prepare([program("vsketchdlc"), "run", "--aux", "3"], RANKS, {})
    assert json.loads(outer.environment[NESTED_VARIABLE])[0] == ["/lib/a.so"]
    inner = prepare([program("train")], RankEnvironment(preload=("/lib/b.so",)), outer.environment)
    assert inner.environment["LD_PRELOAD"] == "/lib/b.so:/lib/a.so"
    assert inner.environment["FASTHVD_AUX"] == "3"
    assert NESTED_VARIABLE not in inner.environment


def test_the_tracer_is_preloaded_before_the_lanes_whichever_command_is_outside(program):
    tracer, lanes = RankEnvironment(observe=("/lib/trace.so",)), RankEnvironment(preload=("/lib/lanes.so",))
    for outer, inner in ((tracer, lanes), (lanes, tracer)):
        handed = prepare([program("vsketchdlc")], outer, {}).environment
        launch = prepare([program("train")], inner, handed)
        assert launch.environment["LD_PRELOAD"] == "/lib/trace.so:/lib/lanes.so"


def test_a_package_below_a_folder_with_blanks_is_found_by_name():
    """The loader cuts LD_PRELOAD at blanks, not LD_LIBRARY_PATH."""
    ranks = RankEnvironment(observe=("/my work/tracer/a.so",), preload=("/lib/b.so",))
    assert ranks.flat({"LD_LIBRARY_PATH": "/cuda", "LD_PRELOAD": "/c.so"}) == {
        "LD_PRELOAD": "a.so:/lib/b.so:/c.so",
        "LD_LIBRARY_PATH": "/my work/tracer:/cuda",
    }
    with pytest.raises(UserError, match="without ':'"):
        RankEnvironment(preload=("/at:home/a.so",)).flat({})


def test_the_users_own_search_order_is_kept_to_the_letter():
    """An empty place in PYTHONPATH is the working folder: scripts live of it without knowing."""
    assert RANKS.flat({"PYTHONPATH": "/mine:"})["PYTHONPATH"] == "/hook:/mine:"


def test_no_command_and_unknown_command_are_the_users_mistake():
    with pytest.raises(UserError, match="put your own after '--'"):
        prepare([], RANKS)
    with pytest.raises(UserError, match="'no-such-program' is not found"):
        prepare(["no-such-program"], RANKS)


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_commands_own_status_is_passed_on(script, status):
    assert run(prepare(["sh", "-c", script], RankEnvironment())) == status


@pytest.mark.parametrize(("own", "status"), [(1, 130), (0, 0)])
def test_ctrl_c_is_130_whatever_the_command_makes_of_it(tmp_path, own, status):
    script = f"trap 'exit {own}' INT; touch {tmp_path}/started; while :; do sleep 0.05; done"
    outer = (
        "import sys; from vsketchdlc.tracer.launcher import RankEnvironment, prepare, run\n"
        f"sys.exit(run(prepare(['sh', '-c', {script!r}], RankEnvironment())))"
    )
    process = subprocess.Popen([sys.executable, "-c", outer], start_new_session=True)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == status


def test_an_own_command_that_is_interrupted_has_time_to_clear_up(tmp_path):
    """Ctrl-C in the trial of tune: the tracer ends the ranks and removes its logs, then tune leaves."""
    inner = (
        "import pathlib, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "try:\n"
        "    (here / 'started').touch(); time.sleep(30)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(1); (here / 'cleared').touch()\n"
    )
    outer = (
        "import os, sys; from vsketchdlc.tracer.launcher import run_own\n"
        f"run_own([sys.executable, '-c', {inner!r}], os.environ)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", outer], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert (tmp_path / "cleared").exists()
