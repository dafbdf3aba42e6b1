"""Every example prints what its `.out` file says: the first line there is the command, the rest its stdout.

Words must be the same. A number may differ by one in its last digit: another processor rounds elsewhere.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
LIVE = ("train_mxnet", "train_kvstore")


def transcript(name):
    """The command of the example `name`, as words, and what it prints."""
    first, _, expected = (EXAMPLES / f"{name}.out").read_text().partition("\n")
    assert first.startswith("$ "), f"{name}.out begins with the command: '$ python {name}.py'"
    return shlex.split(first[2:]), expected


def run(words, folder):
    """Run an example's command in `folder`, with the programs of this Python's environment in front."""
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def assert_same(printed, expected):
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", expected), printed
    for got, want in zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True):
        digits = len(want.partition(".")[2])
        assert abs(float(got) - float(want)) <= 1.5 * 10**-digits * (digits > 0), printed


@pytest.fixture
def desk(tmp_path):
    """A folder as a user has it who copied the examples, with a recorded trace in it."""
    for file in EXAMPLES.glob("*.py"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "trace").symlink_to(REPOSITORY / "tests" / "data" / "replay" / "alexnet-two-hosts")
    return tmp_path


def test_every_example_has_its_output():
    scripts = {file.stem for file in EXAMPLES.glob("*.py")} - {"__init__"}
    assert scripts == {file.stem for file in EXAMPLES.glob("*.out")}
    assert scripts >= {*LIVE, "what_if", "ask_a_trace", "lanes_without_mpi"}


@pytest.mark.parametrize("name", ["what_if", "ask_a_trace", "lanes_without_mpi"])
def test_the_example_prints_what_its_page_says(name, desk):
    words, expected = transcript(name)
    done = run(words, desk)
    assert done.returncode == 0, done.stderr
    assert_same(done.stdout, expected)


@pytest.mark.live
@pytest.mark.parametrize("name", LIVE)
def test_the_training_prints_the_same_losses_each_time(name, desk):
    words, expected = transcript(name)
    (desk / "trace").unlink()
    done = run(words, desk)
    assert done.returncode == 0, done.stderr
    assert_same(done.stdout, expected)
    assert "median step" in done.stderr
