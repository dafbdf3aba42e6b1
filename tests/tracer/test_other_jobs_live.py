"""Jobs that are not the usual one: Gloo, MPICH, other kinds of KVStore, a wrapper that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vsketchdlc.tracer.trace import Trace

pytestmark = pytest.mark.live

DATA = Path(__file__).parents[1] / "data" / "tracer"
BIN = Path(sys.executable).parent
MPIRUN = [
    "mpirun",
    "--allow-run-as-root",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "--mca",
    "btl",
    "tcp,self",
]
MPIRUN += ["--mca", "btl_tcp_if_include", "lo", "-np", "2"]


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}", **more}


def trace(output, *words, **more):
    command = [str(BIN / "vsketchdlc"), "trace", "-o", str(output), *map(str, words)]
    done = subprocess.run(
        command, env=environment(**more), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return Trace.open(output)


@pytest.mark.parametrize("kind", ["dist_device_sync", "dist_async"])
def test_other_kinds_of_kvstore_and_arrays_split_over_servers(tmp_path, kind):
    # 8,192 values of dense0_weight are more than this bound: half of them goes to each server.
    recorded = trace(
        tmp_path / "trace", "--kvstore", "2x2", "--", sys.executable, DATA / "train_kvstore.py", 6, kind,
        MXNET_KVSTORE_BIGARRAY_BOUND="1000",
    )  # fmt: skip
    parts = recorded.query(
        "select tensor, count(distinct flow) as servers, count(*) as n, sum(bytes) as bytes from events "
        "where kind = 'kv_push' and step = 3 and rank = 0 group by tensor"
    ).set_index("tensor")
    names = {info.name: info.parameter for info in recorded.meta.tensors}
    servers = {names[tensor]: int(row["servers"]) for tensor, row in parts.iterrows()}
    assert servers == {"dense0_weight": 2, "dense0_bias": 1, "dense1_weight": 1, "dense1_bias": 1}
    split = next(tensor for tensor, name in names.items() if name == "dense0_weight")
    assert (
        4 * 64 * 128 <= parts.loc[split, "bytes"] < 4 * 64 * 128 + 200
    )  # keys and lengths beside the values
    times = recorded.kvstore()
    assert (times["queue_s"] >= 0).all()
    assert (times["transfer_s"] > 0).all()
    apart = times["trip_s"] - times["queue_s"] - times["transfer_s"]
    assert (apart.abs() < times["trip_s"]).all()


def test_gloo_is_seen_and_named(tmp_path):
    launch = ["horovodrun", "--gloo", "-np", "2", "-H", "localhost:2", "--network-interface", "lo"]
    recorded = trace(tmp_path / "trace", "--", *launch, sys.executable, DATA / "train_tiny.py", 6)
    largest = recorded.flows().iloc[:2]
    assert set(largest["owner"]) == {"Gloo"}
    assert {(row.sender, row.receiver) for row in largest.itertuples()} == {(0, 1), (1, 0)}
    assert (largest["bytes"] > 6 * 104_104).all()
    assert largest["delay_s"].notna().all()
    assert any("Gloo" in note for note in recorded.meta.notes)
    done = recorded.query("select count(*) as n from events where kind = 'done' and step >= 0")
    assert done["n"].iloc[0] == 2 * 6 * 6


def test_mpi4py_below_mpich(tmp_path):
    script = tmp_path / "calls.py"
    script.write_text(
        "import time, numpy as np\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "ones = np.ones(1000, dtype='f4')\n"
        "for _ in range(3): world.Allreduce(MPI.IN_PLACE, ones)\n"
        "world.Bcast(ones); world.Allgather(np.ones(4), np.empty(8)); world.Barrier()\ntime.sleep(0.1)\n"
    )
    home = BIN.parent / "mpich"
    assert (home / "bin" / "mpiexec").exists(), "setup/environment.sh puts MPICH into .venv/mpich"
    path = f"{home / 'bin'}:{BIN}:{os.environ['PATH']}"
    recorded = trace(
        tmp_path / "trace", "--", home / "bin" / "mpiexec", "-n", 2, sys.executable, script,
        PATH=path, LD_LIBRARY_PATH=str(home / "lib"), MPI4PY_MPIABI="mpich",
    )  # fmt: skip
    assert recorded.meta.settings["mpi"] == "MPICH"
    found = recorded.query(
        "select rank, kind, count(*) as n, sum(bytes) as bytes from events group by all order by all"
    )
    once = [("allgather", 1, 32), ("allreduce", 3, 12_000), ("barrier", 1, 0), ("broadcast", 1, 4_000)]
    assert list(found.itertuples(index=False, name=None)) == [(rank, *row) for rank in (0, 1) for row in once]


def test_a_killed_wrapper_takes_its_job_along_and_its_logs_can_be_collected(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = tmp_path / "train_killed.py"
    text = (DATA / "train_tiny.py").read_text()
    script.write_text(
        text.replace("    loss.backward()", "    print('step', flush=True)\n    loss.backward()")
    )
    command = [
        str(BIN / "vsketchdlc"),
        "trace",
        "--scratch",
        str(scratch),
        "-o",
        str(tmp_path / "trace"),
        "--",
    ]
    command += [*MPIRUN, sys.executable, str(script), "100000"]
    wrapper = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert wrapper.stdout is not None
    wrapper.stdout.readline()
    time.sleep(0.5)
    wrapper.send_signal(signal.SIGKILL)
    wrapper.wait()
    deadline = time.monotonic() + 20
    while (left := processes_of(script)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    (raw_logs,) = scratch.iterdir()
    collect = [str(BIN / "vsketchdlc"), "collect", str(raw_logs), "-o", str(tmp_path / "trace")]
    subprocess.run(collect, env=environment(), check=True, capture_output=True)
    recorded = Trace.open(tmp_path / "trace")
    assert recorded.meta.missing_ranks == []
    assert len(recorded.step_breakdown()) > 0


def processes_of(script):
    """Numbers of the processes that run `script`."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if str(script).encode() in words and b"vsketchdlc" not in re.split(b"\0", words)[0]:
                found.append(int(place.name))
    return found
