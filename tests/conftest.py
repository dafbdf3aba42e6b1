"""Fixtures of all parts: the right to make a lab, and the check that a live test leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Started in the background by a shell, the tests would hand an ignored SIGINT down to every command they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A change is judged by the same examples every time; at one's desk each run tries new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

REQUIRE_LAB = "VSKETCHDLC_REQUIRE_LAB"


@pytest.fixture(scope="session")
def lab_rights() -> None:
    """Ask for this where a test needs the lab: skips with the reason, or fails where the lab is required."""
    from vsketchdlc.validation.lab import missing_rights

    reason = missing_rights()
    if reason is not None:
        if os.environ.get(REQUIRE_LAB) == "1":
            pytest.fail(f"{REQUIRE_LAB}=1 and the lab cannot run: {reason}")
        pytest.skip(reason)


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Ask for this to check that a test leaves no process, thread, open file, lab folder or control group behind.

    The lab's namespaces are held by processes only, so that no process is left means no namespace is left.
    """
    before = Remains.now()
    yield
    for _ in range(100):
        left = Remains.now().without(before)
        if not left:
            return
        time.sleep(0.05)
    pytest.fail(f"left behind: {', '.join(left)}")


class Remains:
    """What a test could leave behind, by name, as this process sees it now."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    @classmethod
    def now(cls) -> Remains:
        names = {f"thread {thread.name} {thread.ident}" for thread in threading.enumerate()}
        names |= {
            f"open file {fd.name}: {_target(fd)}" for fd in Path("/proc/self/fd").iterdir() if _target(fd)
        }
        descendants = _descendants(os.getpid())
        names |= {f"process {pid} {words}" for pid, words in descendants.items()}
        names |= {f"lab folder {path}" for path in Path("/var/tmp").glob(f"vsketchdlc-lab-*/{os.getpid()}-*")}
        names |= {
            f"control group {path}"
            for path in Path("/sys/fs/cgroup").glob(f"**/vsketchdlc-lab-{os.getpid()}-*")
        }
        return cls(names)

    def without(self, before: Remains) -> list[str]:
        return sorted(self.names - before.names)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _descendants(top: int) -> dict[int, str]:
    """Processes below `top`, and those below process 1 that were ours: marked by the test run's environment."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            except OSError:
                continue
    found: dict[int, str] = {}
    for pid in parents:
        above = pid
        while above in parents and above != top:
            above = parents[above]
        if pid != top and (above == top or _is_marked(pid)):
            words = _words(pid)
            if words:
                found[pid] = words
    return found


def _is_marked(pid: int) -> bool:
    """Whether a process has this test run's environment: also orphans that left the family tree have it."""
    mark = f"PYTEST_CURRENT_TEST={os.environ.get('PYTEST_CURRENT_TEST', '')}".rpartition(" (")[0].encode()
    try:
        return mark in (Path("/proc") / str(pid) / "environ").read_bytes()
    except OSError:
        return False


def _words(pid: int) -> str:
    try:
        return (
            (Path("/proc") / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


# As at a terminal: the whole foreground group gets the signal, once the lanes of this host are there.
_INTERRUPT = """
import os, signal, subprocess, sys, time
from pathlib import Path

def lanes():
    found = 0
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            found += comm.read_text().startswith("fasthvd-lane")
        except OSError:
            pass
    return found

process = subprocess.Popen(sys.argv[1:], start_new_session=True)
while not lanes():
    assert process.poll() is None, "it ended before its lanes were there"
    time.sleep(0.1)
time.sleep(1)
os.killpg(process.pid, signal.SIGINT)
sys.exit(process.wait(timeout=40))
"""


@pytest.fixture
def ctrl_c():
    """Run words on h0 of a lab, press Ctrl-C when lanes run, check that both hosts are empty then; the status."""

    def interrupted(lab, words: list[str]) -> int:
        done = lab.run("h0", [sys.executable, "-c", _INTERRUPT, *words], timeout=120)
        for _ in range(100):
            left = {name: [process.name for process in lab.processes(name)] for name in lab.spec.names}
            if not any(left.values()):
                return int(done.returncode)
            time.sleep(0.1)
        pytest.fail(f"still running after Ctrl-C: {left}")

    return interrupted
