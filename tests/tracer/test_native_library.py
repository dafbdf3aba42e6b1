"""libvsketch.so in plain Python processes, without MPI: it never harms its host and loses nothing it told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.recording import LIBRARY


def start(script: str, folder: Path | None, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), **variables}
    environment.pop("VSKETCH_DIR", None)
    if folder is not None:
        environment["VSKETCH_DIR"] = str(folder)
    prelude = "import ctypes, os, threading, time\nlibrary = ctypes.CDLL(None)\n"
    command = [sys.executable, "-c", prelude + textwrap.dedent(script)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(script: str, folder: Path | None, **variables: str) -> subprocess.CompletedProcess[str]:
    process = start(script, folder, **variables)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def marks(folder: Path) -> list[int]:
    (place,) = folder.iterdir()
    logs = raw.read_process(place).logs
    return sorted(step for log in logs for step in log.records["b"].tolist())


def test_it_is_inert_without_a_recording(tmp_path):
    done = run("library.vsketch_mark(1, 5); print(library.vsketch_ready())", None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_it_makes_no_file_before_the_first_event(tmp_path):
    folder = tmp_path / "recording"
    assert run("pass", folder).returncode == 0
    assert not folder.exists()


def test_shell_tools_run_as_ever(tmp_path):
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "VSKETCH_DIR": str(tmp_path / "recording")}
    done = subprocess.run(
        ["sh", "-c", "ls / | sort | head -1"], env=environment, capture_output=True, check=True
    )
    assert done.stderr == b""
    assert not (tmp_path / "recording").exists()


def test_it_needs_neither_mpi_nor_mxnet():
    needed = subprocess.run(["ldd", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    assert "mpi" not in needed
    assert "mxnet" not in needed


def test_it_starts_no_thread():
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", str(LIBRARY)], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    assert not names & {"pthread_create", "thrd_create", "clone", "clone3"}


def test_several_segments_hold_every_event(tmp_path):
    done = run("for i in range(30_000): library.vsketch_mark(1, i)", tmp_path / "recording")
    assert done.returncode == 0
    assert marks(tmp_path / "recording") == list(range(30_000))


def test_every_thread_has_its_own_log(tmp_path):
    script = """
    def work(base):
        for i in range(base, base + 1000): library.vsketch_mark(1, i)
    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    """
    assert run(script, tmp_path / "recording").returncode == 0
    assert marks(tmp_path / "recording") == list(range(8000))


def test_sigkill_loses_nothing_that_was_recorded(tmp_path):
    script = """
    i = 0
    while True:
        library.vsketch_mark(1, i)
        i += 1
        if i % 100 == 0: print(i, flush=True)
    """
    process = start(script, tmp_path / "recording")
    told = 0
    assert process.stdout is not None
    while told < 20_000:
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    found = marks(tmp_path / "recording")
    assert len(found) >= told
    assert found == list(range(len(found)))


def test_a_forked_child_writes_nothing(tmp_path):
    script = """
    library.vsketch_mark(1, 1)
    child = os.fork()
    library.vsketch_mark(1, 2 if child else 99)
    if child: os.waitpid(child, 0)
    """
    assert run(script, tmp_path / "recording").returncode == 0
    assert marks(tmp_path / "recording") == [1, 2]


def test_the_size_limit_stops_the_recording_and_says_so(tmp_path):
    script = "for i in range(30_000): library.vsketch_mark(1, i)\nprint('trained on')"
    done = run(script, tmp_path / "recording", VSKETCH_MAX_BYTES="600000")
    assert done.stdout == "trained on\n"
    assert "size limit" in done.stderr
    (place,) = (tmp_path / "recording").iterdir()
    process = raw.read_process(place)
    assert process.lost + len(process.logs[0].records) == 30_000
    assert process.logs[0].stopped == raw.STOPPED_BY_SIZE


@pytest.mark.lab
def test_a_full_disk_stops_the_recording_and_never_the_program(tmp_path):
    small = tmp_path / "disk"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.fail("mounting a small file system needs root")
    try:
        script = "for i in range(100_000): library.vsketch_mark(1, i)\nprint('trained on')"
        done = run(script, small / "recording")
        assert (done.returncode, done.stdout) == (0, "trained on\n")
        assert "tracing stopped, training goes on: No space left on device" in done.stderr
        (place,) = (small / "recording").iterdir()
        process = raw.read_process(place)
        assert process.logs[0].stopped == raw.STOPPED_BY_DISK
        assert process.lost + len(process.logs[0].records) == 100_000
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_an_unwritable_place_is_told_and_harmless(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    done = run("library.vsketch_mark(1, 1); print('on')", blocker / "recording")
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert "not traced" in done.stderr


def test_the_switch_and_the_window_decide_what_is_wanted(tmp_path):
    script = """
    wanted = []
    for step in range(-1, 12):
        library.vsketch_step(step)
        if library.vsketch_recording(): wanted.append(step)
    library.vsketch_switch(0)
    library.vsketch_step(4)
    print(wanted, library.vsketch_recording())
    """
    done = run(script, tmp_path / "recording", VSKETCH_STEPS="2:9", VSKETCH_EVERY="3")
    assert done.stdout == "[2, 5, 8] 0\n"
    done = run("print(library.vsketch_recording())", tmp_path / "recording", VSKETCH_ARMED="1")
    assert done.stdout == "0\n"
