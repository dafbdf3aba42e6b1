"""The archive holds one file a rank on its own clock, and a manifest that Perfetto's reader accepts."""

from __future__ import annotations

import json
import zipfile

import pandas as pd
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.exports.archive import MANIFEST, export_archive
from vsketchdlc.tracer.trace import HostInfo, TraceMeta, write_trace

pytest.importorskip("perfetto", reason="the perfetto package is not installed: pip install perfetto")


def on_three_hosts(folder):
    """Ranks 0 and 1 on h0, rank 2 on h1 with a lane and a server; h1's clock is 1,000 s behind."""
    rows = [
        {
            "rank": 0,
            "host": "h0",
            "process": 10,
            "kind": "barrier",
            "t_start_ns": 5_000_000,
            "t_end_ns": 5_000_010,
        },
        {
            "rank": 1,
            "host": "h0",
            "process": 11,
            "kind": "barrier",
            "t_start_ns": 5_000_001,
            "t_end_ns": 5_000_010,
        },
        {
            "rank": 2,
            "host": "h1",
            "process": 10,
            "kind": "barrier",
            "t_start_ns": 4_000_002,
            "t_end_ns": 4_000_010,
        },
        {
            "host": "h1",
            "process": 20,
            "kind": "lane_allgather",
            "lane": 0,
            "t_start_ns": 4_000_003,
            "t_end_ns": 4_000_009,
        },
        {"host": "h1", "process": 21, "kind": "kv_queue", "t_start_ns": 4_000_004, "t_end_ns": 4_000_009},
    ]
    hosts = [HostInfo("h0"), HostInfo("h1", clock_offset_ns=1_000_000)]
    events = pd.DataFrame(rows).astype({"rank": "Int64", "lane": "Int64"})
    return write_trace(folder / "run 1", TraceMeta(ranks=3, hosts=hosts), events)


def test_each_rank_has_a_file_on_its_own_clock(perfetto_check, tmp_path):
    export_archive(on_three_hosts(tmp_path), tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        names = archive.namelist()
        assert names == [MANIFEST, "rank0.pftrace", "rank1.pftrace", "rank2.pftrace", "host0-others.pftrace"]
        found = {name: perfetto_check.check(archive.read(name)) for name in names[1:]}
    starts = {name: [s.start_ns for s in one.slices] for name, one in found.items()}
    assert starts == {
        "rank0.pftrace": [5_000_000],
        "rank1.pftrace": [5_000_001],
        "rank2.pftrace": [4_000_002],
        "host0-others.pftrace": [4_000_003, 4_000_004],
    }
    assert sorted(found["host0-others.pftrace"].processes.values()) == ["lane 0 @ h1", "server 21 @ h1"]


def test_the_manifest_relates_each_host_once(tmp_path):
    export_archive(on_three_hosts(tmp_path), tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        text = archive.read(MANIFEST).decode()
    assert "".join(text.split()).startswith('{"perfetto_manifest"')
    manifest = json.loads(text)["perfetto_manifest"]
    assert manifest["version"] == 1
    files = {entry["path"]: entry for entry in manifest["files"]}
    assert {path: entry["machine"]["name"] for path, entry in files.items()} == {
        "rank0.pftrace": "h0",
        "rank1.pftrace": "h0",
        "rank2.pftrace": "h1",
        "host0-others.pftrace": "h1",
    }
    assert {path: entry["clocks"] for path, entry in files.items() if "clocks" in entry} == {
        "rank2.pftrace": {
            "clock": "BOOTTIME",
            "sync_to": {"file": "rank0.pftrace", "clock": "BOOTTIME"},
            "offset_ns": 1_000_000,
        }
    }


def test_the_same_trace_gives_the_same_bytes(training_trace, tmp_path):
    trace = training_trace(ranks=3)
    export_archive(trace, tmp_path / "a.zip")
    export_archive(trace, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_every_slice_of_a_training_is_in_some_file(training_trace, perfetto_check, tmp_path):
    trace = training_trace(ranks=3, steps=2)
    written = export_archive(trace, tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        found = [perfetto_check.check(archive.read(name)) for name in archive.namelist()[1:]]
    assert [len(one.slices) for one in found] == [written.count // 3] * 3
    rows = int(trace.query("select count(*) as n from events")["n"][0])
    assert written.count == rows + 3  # and one whole step a rank


def test_arrows_between_ranks_have_one_number_in_both_files(training_trace, perfetto_check, tmp_path):
    export_archive(training_trace(ranks=2, steps=1, sockets=True), tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        files = [perfetto_check.check(archive.read(name), alone=False) for name in archive.namelist()[1:]]
    left = {flow for piece in files[0].slices if piece.category == "socket_send" for flow in piece.flows}
    reached = {
        flow for piece in files[1].slices if piece.category == "socket_recv" for flow in piece.ending_flows
    }
    assert len(left) > 500 and left == reached


def test_an_archive_is_not_compressed_twice(training_trace, tmp_path):
    with pytest.raises(UserError, match="compressed twice"):
        export_archive(training_trace(), tmp_path / "out.zip.gz")
