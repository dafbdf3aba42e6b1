"""What a user meets first: one line and exit status 2 for a mistake, never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest


def vsketchdlc(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "vsketchdlc", *words], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"]])
def test_a_mistake_is_one_line_and_status_2(words):
    answer = vsketchdlc(*words)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stderr.startswith("vsketchdlc: ")
    assert "--help" in answer.stderr


def test_alone_it_prints_its_help():
    answer = vsketchdlc()
    assert "Usage:" in answer.stdout


def test_what_if_needs_no_mxnet_and_nothing_native():
    code = (
        "import sys; import vsketchdlc.cli;"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('mxnet', 'horovod', 'mpi4py')];"
        "assert not bad, bad"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_help_and_mistakes_do_not_wait_for_pandas():
    """Start-up is a large part of a short command; heavy imports stand inside the functions that need them."""
    code = (
        "import sys; import vsketchdlc.cli;"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'duckdb', 'scipy', 'plotly', 'networkx', 'simpy'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_ctrl_c_before_the_command_line_is_there_is_quiet():
    code = (
        "import sys, builtins\n"
        "real = builtins.__import__\n"
        "def impatient(name, *rest):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = impatient\n"
        "from vsketchdlc.__main__ import main\n"
        "main()\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (130, "")


def test_the_parts_are_not_importable_from_the_top():
    """A training script has a model.py of its own beside it."""
    code = "import importlib.util as u; assert not any(u.find_spec(n) for n in ('model', 'replay', 'tracer'))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("command", ["whatif", "calibrate", "replay", "report"])
def test_an_empty_name_for_json_is_told_not_forgotten(command, tmp_path):
    """A shell variable that is not set: ``--json "$OUT"``."""
    trace = Path(__file__).parents[1] / "data" / "replay" / "alexnet-two-hosts"
    answer = vsketchdlc(command, str(trace), "--json", "", cwd=tmp_path)
    assert (answer.returncode, len(answer.stderr.splitlines())) == (2, 1), answer.stderr
    assert "it is a folder" in answer.stderr
