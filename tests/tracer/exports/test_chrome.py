"""The Chrome file is read back by a checker that knows the format's rules and nothing of our writer."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path

import pandas as pd
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.exports.chrome import export_chrome
from vsketchdlc.tracer.trace import HostInfo, TraceMeta, write_trace


def test_every_rank_is_a_named_process_with_named_rows(training_trace, chrome_check, tmp_path):
    export_chrome(training_trace(), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert found.processes == {0: "rank 0 @ h0", 1: "rank 1 @ h1"}
    rows = {name for (pid, _), name in found.threads.items() if pid == 0}
    assert {"steps", "main", "python", "engine", "horovod", "engine: ready", "horovod: done"} <= rows


def test_slices_keep_their_nanoseconds(training_trace, chrome_check, tmp_path):
    trace = training_trace(ranks=1, steps=2)
    export_chrome(trace, tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    base = found.metadata[0]["base_ns"]
    wanted = trace.query("select t_start_ns, t_end_ns from events where kind = 'allreduce' order by 1")
    drawn = sorted((s.start_ns + base, s.end_ns + base) for s in found.slices if s.name == "allreduce")
    assert drawn == [tuple(row) for row in wanted.itertuples(index=False)]


def test_an_arrow_follows_each_tensor_through_its_bucket(training_trace, chrome_check, tmp_path):
    export_chrome(training_trace(ranks=2, steps=3), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert len(found.arrows) == 2 * 3 * 16
    for ready, carrier, done in found.arrows:
        assert ready.name.startswith("ready alexnet0_") and done.name == ready.name.replace("ready", "done")
        assert carrier.name == "allreduce"
        assert carrier.args["bucket"] == done.args["bucket"] and carrier.args["step"] == ready.args["step"]
        assert ready.pid == carrier.pid == done.pid


def tcp(kind: str, rank: int, at: int, offset: int, size: int, flow: str = "h0:1>h1:2") -> dict[str, object]:
    return {
        "rank": rank, "process": rank, "host": f"h{rank}", "track": "tcp", "kind": kind, "flow": flow,
        "offset": offset, "bytes": size, "t_start_ns": at, "t_end_ns": at + 10,
    }  # fmt: skip


def test_an_arrow_leads_each_send_to_the_receive_of_its_last_byte(chrome_check, tmp_path):
    rows = [
        tcp("socket_send", 0, 100, 0, 1000),
        tcp("socket_send", 0, 120, 1000, 500),
        tcp("socket_recv", 1, 150, 0, 600),
        tcp("socket_recv", 1, 170, 600, 900),
        tcp("socket_send", 0, 300, 1500, 50),  # its receive starts before it: clocks are off
        tcp("socket_recv", 1, 290, 1500, 50),
        tcp("socket_send", 0, 400, 7, 5, "other"),  # two streams of one name, one after the other
        tcp("socket_send", 0, 420, 7, 5, "other"),
        tcp("socket_recv", 1, 450, 7, 5, "other"),
    ]
    export_chrome(write_trace(tmp_path / "t", TraceMeta(ranks=2), pd.DataFrame(rows)), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    joined = [[(s.pid, s.args.get("offset", 0), s.args["bytes"]) for s in arrow] for arrow in found.arrows]
    assert sorted(joined) == [[(0, 0, 1000), (1, 600, 900)], [(0, 1000, 500), (1, 600, 900)]]


def test_an_arrow_follows_each_request_to_a_server_and_back(chrome_check, tmp_path):
    rows = []
    for number, late in ((3, 0), (4, 500)):
        at = 1000 * number
        for rank, kind, start in (
            (0, "kv_push", at),
            (0, "kv_request", at),
            (None, "kv_request", at + 50 - late),  # the second one seems to be there before it was sent
            (None, "kv_queue", at + 100),
            (None, "kv_response", at + 200),
            (0, "kv_response", at + 250),
        ):
            event = {"rank": rank, "process": 1 if rank == 0 else 9, "track": "kvstore", "kind": kind}
            event |= {"flow": "w0>s0", "bucket": number, "t_start_ns": start, "t_end_ns": start + 40}
            rows.append(event)
    events = pd.DataFrame(rows).astype({"rank": "Int64"})
    export_chrome(write_trace(tmp_path / "t", TraceMeta(ranks=1), events), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert found.processes[100_001] == "server 9"
    [arrow] = found.arrows
    assert [(s.pid, s.name, s.args["bucket"]) for s in arrow] == [
        (0, "kv_request", 3),
        (100_001, "kv_request", 3),
        (100_001, "kv_response", 3),
        (0, "kv_response", 3),
    ]


def test_intervals_that_overlap_in_part_get_rows_of_their_own(chrome_check, tmp_path):
    rows = [
        {"rank": 0, "process": 1, "track": "horovod", "kind": "fuse_in", "t_start_ns": 0, "t_end_ns": 100},
        {"rank": 0, "process": 1, "track": "horovod", "kind": "allreduce", "t_start_ns": 50, "t_end_ns": 150},
        {
            "rank": 0,
            "process": 1,
            "track": "horovod",
            "kind": "fuse_out",
            "t_start_ns": 60,
            "t_end_ns": 60,
        },
    ]
    trace = write_trace(tmp_path / "t", TraceMeta(ranks=1), pd.DataFrame(rows))
    export_chrome(trace, tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert sorted(found.threads.values()) == ["horovod", "horovod (2)"]
    assert sorted(s.end_ns - s.start_ns for s in found.slices) == [1, 100, 100]


def test_lanes_and_servers_are_processes_above_the_ranks(chrome_check, tmp_path):
    rows = [
        {"rank": 3, "host": "a", "process": 9, "kind": "allreduce", "t_start_ns": 0, "t_end_ns": 5},
        {"host": "a", "process": 10, "kind": "lane_allgather", "lane": 1, "t_start_ns": 0, "t_end_ns": 5},
        {"host": "b", "process": 10, "kind": "kv_queue", "t_start_ns": 0, "t_end_ns": 5},
    ]
    events = pd.DataFrame(rows).astype({"rank": "Int64", "lane": "Int64"})
    export_chrome(write_trace(tmp_path / "t", TraceMeta(ranks=4), events), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert found.processes == {3: "rank 3 @ a", 100_001: "lane 1 @ a", 100_002: "server 10 @ b"}


def test_samples_become_counters_of_their_process(training_trace, chrome_check, tmp_path):
    samples = pd.DataFrame(
        {
            "t_ns": [5_000_000_001_000, 5_000_000_002_000, 5_000_000_003_000],
            "process": [4001, 4001, 4001],
            "subject": "h0:1>h1:2",
            "name": "rtt_us",
            "value": [1.5, math.nan, 2.5],
        }
    )
    export_chrome(training_trace(samples=samples), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert found.counters == {(1, "rtt_us h0:1>h1:2"): [(1000, 1.5), (3000, 2.5)]}


def test_host_clocks_are_shifted_onto_the_reference(chrome_check, tmp_path):
    rows = [
        {
            "rank": r,
            "host": f"h{r}",
            "process": r,
            "kind": "barrier",
            "t_start_ns": 1000 * r,
            "t_end_ns": 1000 * r + 10,
        }
        for r in (0, 1)
    ]
    hosts = [HostInfo("h0"), HostInfo("h1", clock_offset_ns=-1000)]
    export_chrome(
        write_trace(tmp_path / "t", TraceMeta(ranks=2, hosts=hosts), pd.DataFrame(rows)), tmp_path / "o.json"
    )
    assert {s.start_ns for s in chrome_check.check(tmp_path / "o.json").slices} == {0}


def test_a_large_trace_is_cut_to_a_window_of_steps_and_says_so(training_trace, chrome_check, tmp_path):
    trace = training_trace(ranks=2, steps=30)
    written = export_chrome(trace, tmp_path / "out.json", limit_bytes=300_000)
    assert (tmp_path / "out.json").stat().st_size == written.size_bytes < 300_000
    found = chrome_check.check(tmp_path / "out.json")
    drawn = sorted({s.args["step"] for s in found.slices})
    assert drawn == list(range(1, 1 + len(drawn))) and 3 <= len(drawn) < 29
    assert found.instants == written.notes
    assert f"steps 1 to {drawn[-1]} of 0 to 29" in written.notes[0]


def test_single_sends_are_left_out_before_steps_become_too_few(training_trace, chrome_check, tmp_path):
    trace = training_trace(ranks=1, steps=5, sockets=True)
    written = export_chrome(trace, tmp_path / "out.json", limit_bytes=60_000)
    found = chrome_check.check(tmp_path / "out.json")
    assert not any(s.name.startswith("socket") for s in found.slices)
    assert "no single socket sends" in written.notes[0]


def test_one_step_that_is_too_large_loses_its_shortest_events(training_trace, chrome_check, tmp_path):
    written = export_chrome(training_trace(ranks=2, steps=3), tmp_path / "out.json", limit_bytes=14_000)
    found = chrome_check.check(tmp_path / "out.json")
    assert found.slices and "no events shorter than" in written.notes[0]
    assert {s.args["step"] for s in found.slices} == {1}


def test_chosen_steps_are_drawn_and_no_others(training_trace, chrome_check, tmp_path):
    export_chrome(training_trace(steps=6), tmp_path / "out.json", steps=(2, 3))
    assert {s.args["step"] for s in chrome_check.check(tmp_path / "out.json").slices} == {2, 3}


def test_steps_that_are_not_there_are_a_mistake_and_leave_the_old_file(training_trace, tmp_path):
    (tmp_path / "out.json").write_text("old")
    with pytest.raises(UserError, match="no events in the chosen steps"):
        export_chrome(training_trace(), tmp_path / "out.json", steps=(70, 80))
    assert (tmp_path / "out.json").read_text() == "old"


def test_gz_by_file_name_and_the_same_bytes_each_time(training_trace, chrome_check, tmp_path):
    trace = training_trace()
    export_chrome(trace, tmp_path / "a.json.gz")
    first = (tmp_path / "a.json.gz").read_bytes()
    export_chrome(trace, tmp_path / "a.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == first and gzip.decompress(first).startswith(b"[\n{")
    chrome_check.check(tmp_path / "a.json.gz")


def test_a_full_disk_leaves_the_older_file(training_trace, tmp_path, monkeypatch):
    (tmp_path / "out.json").write_text("old")
    trace = training_trace()
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, os.strerror(28))))
    with pytest.raises(UserError, match="No space left"):
        export_chrome(trace, tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_names_with_quotes_and_other_scripts_survive(chrome_check, tmp_path):
    name = 'we"ird\\層\n\u2028'
    rows = [
        {
            "rank": 0,
            "process": 1,
            "track": name,
            "kind": "push",
            "tensor": name,
            "t_start_ns": 0,
            "t_end_ns": 5,
        }
    ]
    export_chrome(write_trace(tmp_path / "t", TraceMeta(ranks=1), pd.DataFrame(rows)), tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert [s.args["tensor"] for s in found.slices] == [name] and list(found.threads.values()) == [name]
