"""What a host of a running lab is to the commands in it."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.validation.lab import Lab, LabSpec

pytestmark = pytest.mark.lab


def test_hosts_have_names_and_find_each_other(say):
    assert say("h0", "hostname") == "h0"
    assert say("h1", "hostname; getent hosts h0") == "h1\n10.77.0.1       h0"


def test_hosts_share_the_disk_but_not_the_private_folders(lab, say, tmp_path):
    say("h0", "echo mine > /tmp/file; echo mine > /dev/shm/file")
    assert say("h1", "ls /tmp/file /dev/shm/file 2>/dev/null || echo none") == "none"
    assert (lab.temporary_folder("h0") / "file").read_text() == "mine\n"
    say("h0", f"echo ours > {tmp_path}/file")
    assert say("h1", f"cat {tmp_path}/file") == "ours"


def test_a_host_sees_its_own_processes_only(lab, say):
    sleeper = lab.start("h1", ["sleep", "60"])
    while not lab.processes("h1"):
        time.sleep(0.01)
    assert [process.argv for process in lab.processes("h1")] == [("sleep", "60")]
    assert lab.processes("h0") == []
    sleeper.kill()
    sleeper.wait()


def test_streams_status_and_signals_are_the_commands_own(lab):
    done = lab.run("h0", ["sh", "-c", "cat; echo oops >&2; exit 7"], input="hello", capture_output=True)
    assert (done.stdout, done.stderr, done.returncode) == ("hello", "oops\n", 7)
    assert lab.run("h0", ["sh", "-c", "kill -SEGV $$"]).returncode == -signal.SIGSEGV
    with pytest.raises(subprocess.CalledProcessError):
        lab.run("h0", ["false"], check=True)


def test_a_signal_to_the_agent_reaches_the_command(lab):
    process = lab.start(
        "h0",
        ["sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"],
        stdout=-1,
    )
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.communicate()[0] == "caught\n"
    assert process.returncode == 3


def test_a_timeout_kills_the_whole_session(lab):
    with pytest.raises(subprocess.TimeoutExpired):
        lab.run("h0", ["sh", "-c", "sleep 60 & sleep 60"], timeout=0.3)
    assert lab.processes("h0") == []


def test_what_a_command_leaves_behind_can_be_seen(lab, say):
    say("h0", "sleep 60 >/dev/null 2>&1 & echo started")
    (left,) = lab.processes("h0")
    assert left.argv == ("sleep", "60")
    say("h0", f"kill -9 {left.pid}")


def test_a_command_that_cannot_start_says_why_and_has_the_shells_status(lab, tmp_path):
    done = lab.run("h0", ["no-such-program"], capture_output=True)
    assert (done.returncode, done.stderr) == (
        127,
        "lab: cannot start no-such-program: No such file or directory\n",
    )
    with pytest.raises(UserError, match="no host 'h9'; the hosts are h0, h1"):
        lab.run("h9", ["true"])


def test_another_host_is_reached_as_by_ssh(say):
    assert say("h0", "ssh -o BatchMode=yes -p 22 root@h1 hostname '&&' pwd") == f"h1\n{os.environ['HOME']}"
    assert say("h0", "rsh h1 exit 5; echo $?") == "5"
    assert say("h0", "echo text | ssh h1 cat") == "text"
    assert say("h0", "ssh h9 true 2>&1; echo $?") == "lab: there is no host 'h9'\n255"


def test_the_environment_of_a_command_is_not_that_of_another_host(say):
    line = 'ssh h1 "echo \\${SECRET:-unset} \\$LAB_HOME"'
    assert say("h0", line, env={"SECRET": "x", "LAB_HOME": "y"}) == "unset"


def test_a_lab_below_tmp_in_a_folder_with_spaces(lab_rights, tmp_path, monkeypatch):
    folder = tmp_path / "a folder 'of' mine"
    folder.mkdir()
    (folder / "train.py").write_text("print('found')")
    monkeypatch.chdir(folder)
    with Lab(LabSpec(hosts=2)) as lab:
        done = lab.run("h1", [sys.executable, "train.py"], capture_output=True, check=True)
    assert done.stdout == "found\n"


def test_clocks_of_hosts_may_differ(lab_rights):
    spec = LabSpec(hosts=2, overrides={"h1": {"clock_offset_s": 5000.5}})
    with Lab(spec) as lab:
        words = [sys.executable, "-c", "import time; print(time.monotonic())"]
        here, there = (
            float(lab.run(host, words, capture_output=True, check=True).stdout) for host in lab.hosts
        )
    assert 5000.5 <= there - here < 5060


BURN = "import time\nend = time.time() + 1\nwhile time.time() < end: pass\nprint(time.process_time())"


def test_a_quota_holds_back_a_host_and_can_be_changed(lab_rights, leaves_nothing):
    with Lab(LabSpec(hosts=2, overrides={"h1": {"cores": 1.0, "speed": 0.3}})) as lab:
        assert (
            float(lab.run("h1", [sys.executable, "-c", BURN], capture_output=True, check=True).stdout) < 0.45
        )
        lab.set_speed("h1", 0.1)
        assert (
            float(lab.run("h1", [sys.executable, "-c", BURN], capture_output=True, check=True).stdout) < 0.2
        )
        with pytest.raises(UserError, match="h0 has no CPU quota"):
            lab.set_speed("h0", 0.5)


def test_one_thread_gets_no_more_than_one_slow_core(lab_rights, leaves_nothing):
    """The host may use 0.6 of a core, a single thread of it 0.3."""
    with Lab(LabSpec(hosts=1, cores=2, speed=0.3)) as lab:
        assert (
            float(lab.run("h0", [sys.executable, "-c", BURN], capture_output=True, check=True).stdout) < 0.45
        )


def test_two_labs_do_not_meet(lab, say, leaves_nothing):
    with Lab(LabSpec(hosts=3)) as other:
        assert (
            other.run("h2", ["getent", "hosts", "h1"], capture_output=True).stdout.split()[0] == "10.77.0.2"
        )
        say("h0", "echo mine > /tmp/whose")
        assert other.run("h0", ["cat", "/tmp/whose"], capture_output=True).returncode == 1
    assert say("h1", "hostname") == "h1"


def test_a_lab_made_in_a_thread_outlives_it(lab_rights, leaves_nothing):
    made = []
    thread = threading.Thread(target=lambda: made.append(Lab(LabSpec(hosts=2)).__enter__()))
    thread.start()
    thread.join()
    assert made[0].run("h0", ["ssh", "h1", "hostname"], capture_output=True).stdout == "h1\n"
    made[0].close()
    with pytest.raises(UserError, match="it is closed"):
        made[0].run("h0", ["true"])


def test_an_error_inside_the_block_ends_the_lab_too(lab_rights, leaves_nothing):
    with pytest.raises(ZeroDivisionError), Lab(LabSpec(hosts=2)) as lab:
        lab.start("h0", ["sleep", "60"])
        raise ZeroDivisionError


def test_a_host_that_cannot_start_takes_all_with_it_and_says_why(lab_rights, leaves_nothing):
    spec = LabSpec(hosts=2, overrides={"h1": {"clock_offset_s": -1e9}})
    with (
        pytest.raises(
            UserError, match=r"h1 cannot start: clock_offset -1e\+09 s: Numerical result out of range"
        ),
        Lab(spec),
    ):
        pass
