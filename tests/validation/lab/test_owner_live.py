"""The lab ends with its owner, however that one ends."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vsketchdlc.validation.lab.state import remove_leftovers, start_ticks

pytestmark = pytest.mark.lab

VSKETCHDLC = [sys.executable, "-m", "vsketchdlc"]

OWNER = """
import os, sys, time
from vsketchdlc.validation.lab import Lab, LabSpec
spec = LabSpec(hosts=2, nic_bits_per_s=1e9, flow_cap_bits_per_s=250e6, cores=0.5)
print("starting", flush=True)
with Lab(spec) as lab:
    lab.start("h0", ["sh", "-c", "setsid sleep 300 & sleep 300"])
    lab.start("h1", ["sleep", "300"])
    while not (lab.processes("h0") and lab.processes("h1")):
        time.sleep(0.01)
    if "fork" in sys.argv and os.fork() == 0:
        time.sleep(2)
        os._exit(0)
    print("running", flush=True)
    if "fork" not in sys.argv:
        time.sleep(300)
"""


@pytest.fixture
def lab_file(tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text("hosts = 2")
    return str(path)


def start_owner(*words):
    return subprocess.Popen([sys.executable, "-c", OWNER, *words], stdout=subprocess.PIPE, text=True)


def hosts_of(owner):
    """The hosts' processes as the machine sees them: children of the owner, and theirs."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, found.splitlines())}
    family = {owner}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {owner}


def wait_until_ended(pids):
    deadline = time.monotonic() + 20
    while left := [pid for pid in pids if start_ticks(pid) is not None]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def remains(owner):
    folders = Path("/var/tmp").glob(f"vsketchdlc-lab-*/{owner}-*")
    return [*folders, *Path("/sys/fs/cgroup").glob(f"**/vsketchdlc-lab-{owner}-*")]


def test_sigkill_of_the_owner_ends_all_and_the_next_start_cleans_up(lab_rights, leaves_nothing):
    owner = start_owner()
    assert [owner.stdout.readline(), owner.stdout.readline()] == ["starting\n", "running\n"]
    family = hosts_of(owner.pid)
    assert len(family) > 8
    owner.kill()
    owner.communicate()
    wait_until_ended(family)
    assert remains(owner.pid)
    remove_leftovers()
    assert remains(owner.pid) == []


@pytest.mark.slow
def test_sigkill_at_any_moment_of_the_start(lab_rights, leaves_nothing):
    for moment in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2):
        owner = start_owner()
        assert owner.stdout.readline() == "starting\n"
        time.sleep(moment)
        family = hosts_of(owner.pid)
        owner.kill()
        owner.communicate()
        wait_until_ended(family)
        remove_leftovers()
        assert remains(owner.pid) == []


def test_a_fork_of_the_owner_does_not_keep_the_lab(lab_rights, leaves_nothing):
    owner = start_owner("fork")
    assert [owner.stdout.readline(), owner.stdout.readline()] == ["starting\n", "running\n"]
    assert owner.wait(timeout=20) == 0
    assert remains(owner.pid) == []
    owner.communicate()


def run_command(lab_file, *words, **more):
    return subprocess.run(
        [*VSKETCHDLC, "lab", "run", lab_file, "--", *words],
        capture_output=True,
        text=True,
        timeout=60,
        **more,
    )


def test_lab_run_passes_streams_and_status_on(lab_rights, leaves_nothing, lab_file):
    done = run_command(lab_file, "sh", "-c", "cat; hostname; exit 9", input="given ")
    assert (done.stdout, done.returncode) == ("given h0\n", 9)
    assert "2 hosts" in done.stderr
    assert "charged to the sender" in done.stderr
    assert run_command(lab_file, "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM


def test_lab_run_with_closed_streams(lab_rights, leaves_nothing, lab_file):
    words = shlex.join([*VSKETCHDLC, "lab", "run", "-q", lab_file, "--", "sh", "-c", "cat; exit 6"])
    assert subprocess.run(f"{words} <&- >&- 2>&-", shell=True).returncode == 6


def test_lab_run_without_file_descriptors_or_disk_space_says_so(lab_rights, leaves_nothing, lab_file):
    words = shlex.join([*VSKETCHDLC, "lab", "run", "-q", lab_file, "--", "true"])
    done = subprocess.run(f"ulimit -n 16; exec {words}", shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert "too many open files" in done.stderr.lower()
    full = 'mount -t tmpfs -o size=16k none /var/tmp && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", full, "sh", *VSKETCHDLC]
    done = subprocess.run([*words, "lab", "run", lab_file, "--", "true"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr


def test_lab_run_of_what_does_not_exist(lab_rights, leaves_nothing, lab_file):
    done = run_command(lab_file, "no-such-program")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "vsketchdlc: the command 'no-such-program' is not found or not executable; check its spelling"
    )
    missing = subprocess.run(
        [*VSKETCHDLC, "lab", "run", "none.toml", "--", "true"], capture_output=True, text=True
    )
    assert missing.returncode == 2
    assert missing.stderr.startswith("vsketchdlc: cannot read lab file none.toml")


def test_root_of_a_user_namespace_can_run_a_lab(lab_rights, leaves_nothing, lab_file):
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode:
        assert os.environ.get("VSKETCHDLC_REQUIRE_LAB") != "1", (
            "the lab is required, and user namespaces with it"
        )
        pytest.skip("this kernel gives no user namespaces")
    words = ["unshare", "-Ur", *VSKETCHDLC, "lab", "run", "-q", lab_file, "--", "ssh", "h1", "hostname"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "h1\n"


def test_a_lab_inside_a_lab(lab_rights, leaves_nothing, lab_file):
    here = Path(lab_file).parent  # Shared with the hosts, as it is the folder the lab is started from.
    inner = [*VSKETCHDLC, "lab", "run", "-q", lab_file, "--", "ssh", "h1", "hostname"]
    done = run_command(lab_file, *inner, cwd=here)
    assert (done.stdout, done.returncode) == ("h1\n", 0)


def test_labs_may_start_at_the_same_time(lab_rights, leaves_nothing, lab_file):
    words = [*VSKETCHDLC, "lab", "run", "-q", lab_file, "--", "ssh", "h1", "hostname"]
    labs = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [lab.communicate(timeout=60)[0] for lab in labs] == ["h1\n"] * 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lab_run_hands_signals_on_and_ends_with_the_command(lab_rights, leaves_nothing, lab_file, number):
    line = f"trap 'echo caught; exit 4' {number}; echo ready; while :; do sleep 0.05; done"
    command = [*VSKETCHDLC, "lab", "run", "-q", lab_file, "--", "sh", "-c", line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=20)[0] == "caught\n"
    assert process.returncode == 4


def test_lab_clean_says_what_it_removed(lab_rights):
    done = subprocess.run([*VSKETCHDLC, "lab", "clean"], capture_output=True, text=True, check=True)
    assert "removed" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights up")
def test_without_rights_one_line_says_what_is_missing(lab_file):
    words = ["setpriv", "--bounding-set=-sys_admin", *VSKETCHDLC, "lab", "run", lab_file, "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "vsketchdlc: a lab makes network namespaces, and you are root without CAP_SYS_ADMIN; "
        "in a container, start it with --privileged"
    )
