"""Lanes over several interfaces and over IPv6, between emulated hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

pytestmark = [pytest.mark.live, pytest.mark.lab, pytest.mark.usefixtures("lab_rights", "leaves_nothing")]
RANK = Path(__file__).with_name("mpi_rank.py")
SECOND_NIC = """
set -e
echo 0 > /proc/sys/net/ipv6/conf/e0/disable_ipv6
ip addr add fd00:9::{number}/64 dev e0 nodad
ip link add link e0 name e1 type macvlan mode bridge
ip addr add 10.78.0.{number}/24 dev e1
ip link set e1 up
"""
OF_E0, OF_E1, IPV6 = (
    "004D0A:",
    "004E0A:",
    "090000FD",
)  # as /proc/net/tcp writes 10.77.0.x, 10.78.0.x and fd00:9::


@pytest.fixture
def two_hosts() -> Iterator[Lab]:
    """Each with two interfaces, e0 also with an IPv6 address."""
    with Lab(LabSpec(hosts=2, nic_bits_per_s=10e9)) as lab:
        for number, host in enumerate(lab.spec.names, 1):
            lab.run(host, ["sh", "-c", SECOND_NIC.format(number=number)], check=True)
        yield lab


def connections_of_lanes(lab: Lab, *flags: str) -> tuple[str, str]:
    """The kernel's lines of h0's connections while lanes work with `flags`, and what the job said."""
    run = [
        sys.executable,
        "-m",
        "vsketchdlc",
        "run",
        "--aux",
        "2",
        "--threshold",
        "1MB",
        "--json",
        "-",
        *flags,
    ]
    mpirun = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1", "-x", "TEST_RANKS_PER_HOST"]
    job = lab.start(
        "h0",
        [*run, "--", *mpirun, sys.executable, str(RANK), "steps", "8", "4"],
        env={"TEST_RANKS_PER_HOST": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "step 0\n"
        table = lab.run("h0", ["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True).stdout
        out, err = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    counters = json.loads(out[out.index("{") :])["counters"]
    assert counters["carried"]["calls"] == 8, err
    assert "fasthvd: no lanes" not in err
    return table, err


def open_between(table: str, prefix: str) -> int:
    """Connections that stand between two addresses with `prefix`."""
    rows = [line.split() for line in table.splitlines()]
    return sum(
        1
        for row in rows
        if len(row) > 3 and row[3] == "01" and all(prefix in address for address in row[1:3])
    )


def test_lanes_are_spread_over_several_interfaces_and_go_over_ipv6(two_hosts):
    """Each lane of two hosts has two connections. Open MPI itself takes IPv6 where it is, PRRTE too."""
    spread, _ = connections_of_lanes(two_hosts, "--iface", "e0,e1")
    assert (open_between(spread, OF_E0), open_between(spread, OF_E1)) == (2, 2)
    as_mpi, _ = connections_of_lanes(two_hosts)  # btl_tcp_if_include e0: its first address
    assert (open_between(as_mpi, OF_E0), open_between(as_mpi, OF_E1)) == (4, 0)
    over_six, _ = connections_of_lanes(two_hosts, "--iface", "fd00:9::/64")
    assert (open_between(over_six, OF_E0), open_between(over_six, OF_E1)) == (0, 0)
    assert open_between(over_six, IPV6) == open_between(as_mpi, IPV6) + 4
