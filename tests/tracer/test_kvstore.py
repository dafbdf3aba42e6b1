"""Requests to parameter servers: read from bytes as on the wire, told apart by worker, server and number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vsketchdlc.errors import UserError
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.decode import pslite
from vsketchdlc.tracer.decode.convert import convert
from vsketchdlc.tracer.kvstore_job import KvJob
from vsketchdlc.tracer.trace import Trace

DATA = Path(__file__).parents[1] / "data" / "tracer"
WORKER, SERVER = ("10.0.0.1:7000", "10.0.0.1:5000"), ("10.0.0.2:9000", "10.0.0.2:6000")
SHIFT = 10**12  # the server's clock


def meta(*, request, push, pull, timestamp, control=False):
    """The Meta of MXNet 1.9.1 as seen on the wire."""
    fields = [(1, 0), (4, request), (5, push), (6, 0), (7, 0), (8, timestamp), (10, 0), (12, pull), (13, 0)]
    data = b"".join(bytes([number << 3, int(value)]) for number, value in fields)
    return data + (b"\x1a\x02\x08\x03" if control else b"")


def message(log, start, end, *, connection, sent, key, size, **fields):
    data = meta(**fields)
    log.add(raw.MESSAGE, start, end, connection, size | len(data) << 48, key)
    log.records[-1] = (*log.records[-1][:3], raw.FLAG_SENT * sent, *log.records[-1][4:])
    words = np.frombuffer(data.ljust(-(-len(data) // 16) * 16, b"\0"), dtype="<u8").reshape(-1, 2)
    for part, (first, second) in enumerate(words.tolist()):
        log.add(raw.META, end, end, part, first, second)


def connect(log, number, own, peer):
    text = f"{own} {peer} libmxnet.so".encode()
    words = np.frombuffer(text.ljust(-(-len(text) // 8) * 8, b"\0"), dtype="<u8").tolist()
    for part, word in enumerate(words):
        log.add(raw.CONN, 1, 1, number, word, part)
        log.records[-1] = (
            *log.records[-1][:3],
            raw.FLAG_END * (part == len(words) - 1),
            *log.records[-1][4:],
        )


def test_the_four_stamps_of_one_push_and_pull(recording, tmp_path):
    worker, server = recording(rank=0, host="h0"), recording(rank=9, host="h1")
    at_worker, at_server = worker.log("zmq"), server.log("zmq")
    # Requests go from the worker's own socket to the server's bound one, answers the other way by another one.
    connect(at_worker, 0, WORKER[0], SERVER[1])
    connect(at_server, 0, SERVER[1], WORKER[0])
    connect(at_worker, 1, WORKER[1], SERVER[0])
    connect(at_server, 1, SERVER[0], WORKER[1])
    both = {"push": True, "pull": True, "timestamp": 7}
    message(at_worker, 100, 150, connection=0, sent=True, key=3, size=4000, request=True, **both)
    message(
        at_server, SHIFT + 120, SHIFT + 190, connection=0, sent=False, key=3, size=4000, request=True, **both
    )
    message(
        at_server, SHIFT + 900, SHIFT + 930, connection=1, sent=True, key=0, size=4100, request=False, **both
    )
    message(at_worker, 910, 1000, connection=1, sent=False, key=0, size=4100, request=False, **both)
    message(at_worker, 50, 60, connection=0, sent=True, key=0, size=28, request=True, push=False, pull=False,
            timestamp=8, control=True)  # fmt: skip
    worker.write()
    folder = server.write()
    (folder / "identity").write_text("host=h1\npid=109\nrole=server\nservers=1\ncores=2\n")
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    table = trace.query(
        "select kind, peer, tensor, bucket, bytes, t_end_ns - t_start_ns as ns from events "
        "where track = 'kvstore' order by rank nulls last, t_start_ns, kind"
    )
    whole = table.astype(object).where(table.notna(), None)
    assert list(whole.itertuples(index=False, name=None)) == [
        ("negotiate", None, None, None, 28, 10),
        ("kv_pull", "server 0", "kvstore.3", 7, 4100, 900),
        ("kv_push", "server 0", "kvstore.3", 7, 4000, 900),
        ("kv_request", "server 0", "kvstore.3", 7, 4000, 50),
        ("kv_response", "server 0", "kvstore.3", 7, 4100, 90),
        ("kv_request", "rank 0", "kvstore.3", 7, 4000, 70),
        ("kv_queue", "rank 0", "kvstore.3", 7, 4000, 710),
        ("kv_response", "rank 0", "kvstore.3", 7, 4100, 30),
    ]


@given(servers=st.integers(1, 64), server=st.integers(0, 63), key=st.integers(0, 10_000))
def test_a_key_on_the_wire_tells_key_and_server(servers, server, key):
    server %= servers
    wire = pslite.ALL_KEYS // servers * server + key
    assert pslite.key_and_server(wire, servers) == (key, server)


def test_a_split_array_has_the_same_key_on_every_server():
    assert pslite.key_and_server(0x8000000000000002, 2) == (3, 1)
    assert pslite.key_and_server(2, 2) == (2, 0)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_harm(data):
    pslite.read_fields(data)


def test_jobs_are_written_as_workers_x_servers():
    job = KvJob.parse("4x2", "a,b", "ssh")
    assert (job.workers, job.servers, job.hosts) == (4, 2, ("a", "b"))
    for wrong in ("2", "0x1", "ax1", "2x", "2x0"):
        with pytest.raises(UserError, match="WORKERSxSERVERS"):
            KvJob.parse(wrong, None, "ssh")


@pytest.mark.live
def test_a_real_job_with_two_servers(tmp_path):
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{binaries}:{os.environ['PATH']}"}
    command = [str(binaries / "vsketchdlc"), "trace", "--kvstore", "2x2", "-o", str(tmp_path / "trace"), "--"]
    command += [sys.executable, str(DATA / "train_kvstore.py"), "6"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("terminate called") == 0
    trace = Trace.open(tmp_path / "trace")
    assert {info.parameter for info in trace.meta.tensors} >= {"dense0_weight", "dense1_bias"}
    pushes = trace.query("select count(*) as n from events where kind = 'kv_push' and step >= 1")
    assert pushes["n"].iloc[0] == 2 * 4 * 5  # workers, keys, steps without the first
    table = trace.kvstore()
    assert set(table["parameter"]) == {"dense0_weight", "dense0_bias", "dense1_weight", "dense1_bias"}
    assert (table["queue_s"] >= 0).all()
    assert (table["transfer_s"] > 0).all()
    servers = trace.query("select count(distinct process) as n from events where kind = 'kv_queue'")
    assert servers["n"].iloc[0] == 2
