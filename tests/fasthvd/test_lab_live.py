"""The lanes between emulated hosts: what goes over the wire, and what happens when the network fails."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

pytestmark = [pytest.mark.live, pytest.mark.lab, pytest.mark.usefixtures("lab_rights", "leaves_nothing")]
RANK = Path(__file__).with_name("mpi_rank.py")
FAST = 10e9


def words(ranks: str, flags: Sequence[str], *what: str) -> list[str]:
    total = sum(int(host.split(":")[1]) for host in ranks.split(","))
    run = [sys.executable, "-m", "vsketchdlc", "run", *flags, "--"]
    mpirun = ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(total), "-H", ranks]
    return [*run, *mpirun, "-x", "TEST_RANKS_PER_HOST", sys.executable, str(RANK), *what]


@contextmanager
def started(lab: Lab, ranks: str, flags: Sequence[str], *what: str) -> Iterator[subprocess.Popen[str]]:
    """The job in the lab, once its first step is done."""
    process = lab.start(
        "h0",
        words(ranks, flags, *what),
        env={"TEST_RANKS_PER_HOST": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "step 0\n"
        yield process
    finally:
        process.kill()
        process.wait()


def lanes_left(lab: Lab) -> list[str]:
    return [
        name
        for host in lab.spec.names
        for name in (process.name for process in lab.processes(host))
        if "lane" in name
    ]


@pytest.mark.parametrize("aux", ["0", "1"])
def test_horovods_knobs_reach_the_ranks_of_every_host(aux):
    """mpirun hands a variable of the shell to the ranks of its own host only."""
    run = [sys.executable, "-m", "vsketchdlc", "run", "--aux", aux, "--fusion-threshold-mb", "8", "--"]
    mpirun = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]
    # A program of under 20 ms may be over before mpirun knows it began.
    told = "import os, time; print(os.environ.get('HOROVOD_FUSION_THRESHOLD')); time.sleep(0.5)"
    with Lab(LabSpec(hosts=2, nic_bits_per_s=FAST)) as lab:
        done = lab.run("h0", [*run, *mpirun, sys.executable, "-c", told], capture_output=True, timeout=60)
    assert done.stdout.split() == ["8388608", "8388608"], done.stderr


@pytest.mark.parametrize("ranks", ["h0:2,h1:2", "h0:1,h1:3,h2:1"])
def test_bytes_on_the_wire_are_those_of_hosts_not_of_ranks(ranks):
    hosts = ranks.count(",") + 1
    with Lab(LabSpec(hosts=hosts, nic_bits_per_s=FAST)) as lab:
        before = lab.bytes_on_wire()
        done = lab.run(
            "h0",
            words(ranks, ("--aux", "2", "--threshold", "1MB"), "steps", "12", "16"),
            env={"TEST_RANKS_PER_HOST": "0"},
            capture_output=True,
            timeout=100,
        )
        assert "step 11" in done.stdout, done.stderr
        after = lab.bytes_on_wire()
        due = 12 * 16e6 * 2 * (hosts - 1) / hosts
        for name in lab.spec.names:
            sent = after[name].sent_bytes - before[name].sent_bytes
            assert due < sent < 1.12 * due  # Ethernet, IP and TCP headers, acknowledgements, MPI's own start
        assert not lanes_left(lab)


def test_a_connection_cut_in_the_middle_costs_one_lane():
    with (
        Lab(LabSpec(hosts=2, nic_bits_per_s=2e9)) as lab,
        started(lab, "h0:1,h1:1", ("--aux", "3", "--threshold", "1MB"), "steps", "30", "16") as job,
    ):
        lab.cut_flow(max(lab.flows().items(), key=lambda item: item[1].sent_bytes)[0])
        out, err = job.communicate(timeout=60)
        assert "step 29" in out, err
        assert len(re.findall(r"fasthvd: host h[01], lane \d: .*going on with 2 of 3 lanes", err)) == 1
        assert not lanes_left(lab)


def test_a_cable_pulled_for_a_second_only_costs_time():
    with (
        Lab(LabSpec(hosts=2, nic_bits_per_s=2e9)) as lab,
        started(
            lab, "h0:1,h1:1", ("--aux", "2", "--threshold", "1MB", "--timeout", "20s"), "steps", "20", "16"
        ) as job,
    ):
        lab.link_down("h1")
        time.sleep(1)
        lab.link_up("h1")
        out, err = job.communicate(timeout=90)
        assert "step 19" in out, err
        assert "fasthvd" not in err


def test_a_cable_pulled_for_ever_is_told_in_a_sentence_within_the_time_limit():
    with (
        Lab(LabSpec(hosts=2, nic_bits_per_s=1e9)) as lab,
        started(
            lab, "h0:1,h1:1", ("--aux", "2", "--threshold", "1MB", "--timeout", "4s"), "steps", "500", "32"
        ) as job,
    ):
        time.sleep(0.3)
        lab.link_down("h1")
        assert job.stderr is not None
        line = job.stderr.readline()
        if "to arrive" in line:  # it fell between two allreduces: the other host is late, and is waited for
            assert re.search(r"host h\d, lane \d: allreduce \d+ has waited 4 s for a host to arrive", line), (
                line
            )
            job.kill()
            job.communicate(timeout=60)
            return
        assert re.search(r"fasthvd: rank 0: rank 1 has not voted.*(no byte from|took no byte).*", line), line
        lab.link_up("h1")  # or mpirun itself waits for its other half for ever
        job.communicate(timeout=60)
        assert job.returncode != 0


def test_a_slow_flow_gets_a_smaller_slice():
    with (
        Lab(LabSpec(hosts=2, nic_bits_per_s=1e9, flow_cap_bits_per_s=250e6)) as lab,
        started(
            lab, "h0:1,h1:1", ("--aux", "4", "--threshold", "1MB", "--stats"), "steps", "60", "16"
        ) as job,
    ):
        flows = sorted(lab.flows().items(), key=lambda item: item[1].sent_bytes)
        lab.slow_flow(flows[-1][0], 60e6)
        out, err = job.communicate(timeout=100)
        assert "step 39" in out, err
        sent = [float(number) for number in re.findall(r"stats: h0 .*jobs +([\d.]+) MB sent", err)]
        assert len(sent) == 4
        assert min(sent) < 0.6 * sorted(sent)[1]


def test_the_launcher_killed_leaves_nothing():
    with Lab(LabSpec(hosts=2, nic_bits_per_s=FAST)) as lab:
        with started(lab, "h0:1,h1:1", ("--aux", "2", "--threshold", "1MB"), "steps", "10000", "8") as job:
            job.kill()
        for _ in range(200):
            left = [process.argv for host in lab.spec.names for process in lab.processes(host)]
            if not left:
                break
            time.sleep(0.05)
        assert not left
