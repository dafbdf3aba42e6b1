"""Real MPI and Horovod jobs across the lab's hosts, started by the plain commands a user types."""

import sys
import time

import pytest
from vsketchdlc.validation.lab import Lab, LabSpec

pytestmark = [pytest.mark.lab, pytest.mark.live]

MPI_SUM = """
import socket, time
from mpi4py import MPI
world = MPI.COMM_WORLD
print(socket.gethostname(), world.rank, world.allreduce(1), flush=True)
"""

ALLREDUCE = """
import sys
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
total = hvd.allreduce(mx.nd.ones((int(sys.argv[1]),)), average=False, name="x")
print(hvd.rank(), hvd.size(), hvd.local_size(), float(total.min().asscalar()), float(total.max().asscalar()), flush=True)
"""

FOREVER = """
from mpi4py import MPI
print("started", flush=True)
while True:
    MPI.COMM_WORLD.allreduce(1)
"""


def lines(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_plain_mpirun_starts_a_rank_on_every_host(lab_rights, leaves_nothing, hosts):
    with Lab(LabSpec(hosts=hosts)) as lab:
        words = ["mpirun", "--bind-to", "none", "-np", str(hosts), "-H", ",".join(lab.hosts)]
        done = lab.run("h0", [*words, "python", "-c", MPI_SUM], capture_output=True, timeout=60)
    assert lines(done) == [f"h{rank} {rank} {hosts}" for rank in range(hosts)]


def test_several_ranks_on_each_host(lab):
    words = ["mpirun", "-np", "4", "-H", "h0:2,h1:2", "python", "-c", MPI_SUM]
    done = lab.run("h0", words, capture_output=True, timeout=60)
    assert lines(done) == ["h0 0 4", "h0 1 4", "h1 2 4", "h1 3 4"]


def test_a_horovod_allreduce_moves_its_bytes_over_the_wire(lab):
    before = lab.bytes_on_wire()
    words = [
        "mpirun",
        "--bind-to",
        "none",
        "-np",
        "2",
        "-H",
        "h0,h1",
        "python",
        "-c",
        ALLREDUCE,
        str(1 << 20),
    ]
    done = lab.run("h0", words, capture_output=True, timeout=60)
    assert lines(done) == ["0 2 1 2.0 2.0", "1 2 1 2.0 2.0"]
    after = lab.bytes_on_wire()
    for host in lab.hosts:  # With two ranks each sends the other half of its 4 MiB twice.
        sent = after[host].sent_bytes - before[host].sent_bytes
        assert 4 << 20 < sent < 1.1 * (4 << 20)


@pytest.mark.slow
def test_horovodrun_over_mpi_and_over_gloo(lab, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(ALLREDUCE)
    # Horovod 0.28.1 says -bind-to, which Open MPI 5 takes for a program's name.
    for choice in (["--mpi", "--binding-args=--bind-to none --map-by slot"], ["--gloo"]):
        words = ["horovodrun", *choice, "-np", "2", "-H", "h0:1,h1:1", "python", str(script), "1000"]
        done = lab.run("h0", words, capture_output=True, timeout=90)
        assert done.returncode == 0, done.stderr
        assert "2 1 2.0 2.0" in done.stdout


@pytest.mark.parametrize("victim", ["mpirun", "a rank here", "a rank there", "the whole command"])
def test_whatever_is_killed_no_rank_stays(lab, victim):
    job = lab.start(
        "h0", ["mpirun", "-np", "2", "-H", "h0,h1", sys.executable, "-c", FOREVER], stdout=-1, stderr=-1
    )
    assert job.stdout.readline() == job.stdout.readline() == "started\n"
    if victim == "the whole command":
        job.kill()
    else:
        host = "h1" if victim == "a rank there" else "h0"
        program = "prterun" if victim == "mpirun" else sys.executable
        (pid,) = [
            found.pid for found in lab.processes(host) if program == found.argv[0] and FOREVER in found.argv
        ]
        lab.run(host, ["kill", "-9", str(pid)], check=True)
    job.communicate(timeout=60)
    assert job.returncode != 0
    deadline = time.monotonic() + 30
    while any(lab.processes(host) for host in lab.hosts):
        assert time.monotonic() < deadline, [lab.processes(host) for host in lab.hosts]
        time.sleep(0.05)
