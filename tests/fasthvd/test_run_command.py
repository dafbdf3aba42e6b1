"""The `run` command and its settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.fasthvd.horovod_settings import HorovodSettings
from vsketchdlc.fasthvd.settings import LIBRARY, LaneSettings, parse_ports


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vsketchdlc", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more}, check=False)


def test_one_variable_a_setting():
    settings = LaneSettings(
        3,
        timeout_s=9.5,
        ports=(9000, 9003),
        iface="e0,e1",
        chunk_bytes=8192,
        threshold_bytes=1,
        stats=True,
        pin=True,
        json="-",
        quiet=True,
    )
    assert settings.variables() == {
        "FASTHVD_AUX": "3",
        "FASTHVD_TIMEOUT": "9.5",
        "FASTHVD_PORTS": "9000:9003",
        "FASTHVD_IFACE": "e0,e1",
        "FASTHVD_CHUNK_BYTES": "8192",
        "FASTHVD_THRESHOLD_BYTES": "1",
        "FASTHVD_STATS": "1",
        "FASTHVD_PIN": "1",
        "FASTHVD_JSON": "-",
        "FASTHVD_QUIET": "1",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"aux": -1},
        {"aux": 65},
        {"timeout_s": 0.0},
        {"ports": (9000, 9000)},
        {"chunk_bytes": 1},
        {"threshold_bytes": -1},
        {"threshold_bytes": 10**30},
        {"iface": "e0 e1"},
        {"iface": "e0;reboot"},
        {"iface": "e" * 300},
        {"json": "/"},
    ],
    ids=str,
)
def test_settings_that_cannot_work(wrong):
    with pytest.raises(UserError):
        LaneSettings(**{"aux": 2, **wrong})


def test_horovods_knobs_are_its_own_variables():
    assert HorovodSettings(32, 2.5).variables() == {
        "HOROVOD_FUSION_THRESHOLD": "33554432",
        "HOROVOD_CYCLE_TIME": "2.5",
    }
    assert HorovodSettings().variables() == {}


@pytest.mark.parametrize("wrong", [(-1, None), (float("nan"), None), (None, -0.5), (None, 1e9)])
def test_horovods_knobs_that_cannot_work(wrong):
    with pytest.raises(UserError):
        HorovodSettings(*wrong)


@pytest.mark.parametrize("aux", ["0", "2"])
def test_horovods_knobs_reach_the_command_with_lanes_and_without(aux):
    done = run("--aux", aux, "--fusion-threshold-mb", "8", "--cycle-time-ms", "0.5", "--print-env")
    assert "export HOROVOD_FUSION_THRESHOLD=8388608" in done.stdout
    assert "export HOROVOD_CYCLE_TIME=0.5" in done.stdout


@pytest.mark.parametrize(
    "iface", ["", "e0", "eth0,eth1", "10.1.0.0/16", "fd00::/64,ib0", "^docker0,lo", "bond0.12"]
)
def test_interfaces_that_can_be_named(iface):
    assert LaneSettings(1, iface=iface).iface == iface


@pytest.mark.parametrize("text", ["", "9000", "9000:", "0:1", "2:1", "1:65536", "a:b"])
def test_ports_that_are_none(text):
    with pytest.raises(UserError, match="--ports"):
        parse_ports(text)


def test_every_flag_has_its_variable():
    """The settings come from the environment as well as from the flags, and --print-env gives them all back."""
    given = {
        "FASTHVD_AUX": "2",
        "FASTHVD_TIMEOUT": "7",
        "FASTHVD_PORTS": "9000:9009",
        "FASTHVD_IFACE": "e0",
        "FASTHVD_CHUNK_BYTES": "65536",
        "FASTHVD_THRESHOLD_BYTES": "1000",
        "FASTHVD_STATS": "1",
        "FASTHVD_PIN": "1",
        "FASTHVD_JSON": "counters.json",
        "FASTHVD_QUIET": "1",
    }
    lines = run("--print-env", **given).stdout.splitlines()
    assert {f"export {name}={value}" for name, value in given.items()} <= set(lines)
    assert set(given) == set(LaneSettings(1).variables()) | {
        "FASTHVD_PORTS", "FASTHVD_IFACE", "FASTHVD_CHUNK_BYTES", "FASTHVD_THRESHOLD_BYTES",
        "FASTHVD_STATS", "FASTHVD_PIN", "FASTHVD_JSON", "FASTHVD_QUIET",
    }  # fmt: skip


def test_print_env():
    lines = run("--aux", "2", "--iface", "e0", "--print-env", LD_PRELOAD="").stdout.splitlines()
    assert "export FASTHVD_AUX=2" in lines
    assert "export FASTHVD_IFACE=e0" in lines
    assert f"export LD_PRELOAD={LIBRARY}" in lines


def test_stock_preloads_nothing_and_hands_on_the_status():
    done = run("--aux", "0", "--", "sh", "-c", 'echo "preload=$LD_PRELOAD"; exit 7', LD_PRELOAD="")
    assert (done.returncode, done.stdout) == (7, "preload=\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--aux", "65", "--", "true"), "64"),
        (("--aux", "1"), "after '--'"),
        (("--aux", "1", "--", "no-such-command"), "no-such-command"),
        (("--aux", "2", "--ports", "9:9", "--", "true"), "at least 2"),
        (("--aux", "1", "--timeout", "soon", "--", "true"), "soon"),
        (("--json", "", "--", "true"), "folder"),
        (("--json", "/", "--", "true"), "folder"),
        (("--json", "/no-such-folder/x.json", "--", "true"), "/no-such-folder"),
    ],
)
def test_wrong_use_is_one_line(words, said):
    done = run(*words)
    assert done.returncode == 2
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_more_lanes_than_cores_is_a_warning():
    done = run("--aux", "64", "--", "true")
    assert done.returncode == 0
    assert "warning: 64 lanes" in done.stderr


def test_a_command_without_mpi_is_told_at_its_end_and_keeps_its_status():
    done = run("--", "sh", "-c", "echo out; exit 0")
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert "'sh' did not initialise MPI" in done.stderr and len(done.stderr.splitlines()) == 1
    failed = run("--", "sh", "-c", "exit 9")
    assert (failed.returncode, failed.stderr) == (9, "")  # it has said itself what was wrong
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == 128 + 15


def test_quiet_says_nothing():
    done = run("--quiet", "--aux", "64", "--", "true", HOROVOD_CPU_OPERATIONS="gloo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_json_of_a_command_without_mpi_says_why_there_are_no_counters():
    done = run("--json", "-", "--", "sh", "-c", "exit 4")
    found = json.loads(done.stdout)
    assert (found["status"], found["counters"], found["ranks_of_jobs"]) == (4, None, [])
    assert "did not initialise MPI" in found["note"]
    assert done.returncode == 4


def test_a_killed_run_takes_its_command_with_it(tmp_path):
    words = [
        sys.executable,
        "-m",
        "vsketchdlc",
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        f"echo $$ > {tmp_path}/pid; exec sleep 60",
    ]
    process = subprocess.Popen(words)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    child = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    for _ in range(500):
        if (
            not Path(f"/proc/{child}").exists()
            or "Z" in Path(f"/proc/{child}/stat").read_text().rsplit(")")[1]
        ):
            return
        time.sleep(0.01)
    raise AssertionError("the command lives on")


def test_gloo_is_told(tmp_path):
    for name, variables in (("true", {"HOROVOD_CPU_OPERATIONS": "gloo"}), ("horovodrun", {})):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
        done = run("--aux", "1", "--", str(program), "--gloo", **variables)
        assert done.returncode == 0
        assert "Gloo" in done.stderr and "MPI" in done.stderr


def test_the_library_is_inert_in_other_programs():
    done = run("--aux", "2", "--", "sh", "-c", "ls / >/dev/null && echo fine")
    assert (done.returncode, done.stdout) == (0, "fine\n")
