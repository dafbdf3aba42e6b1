"""The wheel holds the named modules and the native parts, and nothing of the repository's root."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "-q",
            "-w",
            tmp_path,
            REPOSITORY,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    (wheel,) = tmp_path.glob("vsketchdlc-*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("vsketchdlc/")}

    parts = ("tracer", "model", "fasthvd", "replay", "validation", "examples")
    expected = {
        f"vsketchdlc/{name}"
        for name in tracked
        if name.endswith(".py") and name != "setup.py" and (name.split("/")[0] in parts or "/" not in name)
    }
    native = {
        "vsketchdlc/tracer/libvsketch.so",
        "vsketchdlc/fasthvd/libfasthvd.so",
        "vsketchdlc/fasthvd/fasthvd-lane",
    }
    assert {name for name in found if name.endswith(".py")} == expected
    suites = {f"vsketchdlc/{name}" for name in tracked if name.startswith("validation/suites/")}
    assert {name for name in found if not name.endswith(".py")} == native | suites
    assert "-py3-none-" in wheel.name
