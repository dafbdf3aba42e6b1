"""The `run` command and its settings."""

from __future__ import annotations

import subprocess
import sys

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.fasthvd.settings import LIBRARY, LaneSettings, parse_ports


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    import os

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
    }


@pytest.mark.parametrize(
    "wrong",
    [{"aux": -1}, {"aux": 65}, {"timeout_s": 0.0}, {"ports": (9000, 9000)}, {"chunk_bytes": 1}],
    ids=str,
)
def test_settings_that_cannot_work(wrong):
    with pytest.raises(UserError):
        LaneSettings(**{"aux": 2, **wrong})


@pytest.mark.parametrize("text", ["", "9000", "9000:", "0:1", "2:1", "1:65536", "a:b"])
def test_ports_that_are_none(text):
    with pytest.raises(UserError, match="--ports"):
        parse_ports(text)


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
