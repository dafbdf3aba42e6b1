"""A trace on disk: odd names, old files, damaged files, nothing in it, and far more than fits a DataFrame."""

from __future__ import annotations

import json
import os
import random
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.schema import EVENTS
from vsketchdlc.tracer.trace import HostInfo, TensorInfo, Trace, TraceMeta, batches, check_target, write_trace

ROWS = [
    {"rank": 0, "host": "h0", "process": 1, "kind": "forward", "step": 0, "t_start_ns": 5, "t_end_ns": 9},
    {"rank": 1, "host": "h1", "process": 2, "kind": "forward", "step": 0, "t_start_ns": 7, "t_end_ns": 8},
    {"host": "h1", "process": 3, "kind": "lane_allgather", "lane": 0, "t_start_ns": 6, "t_end_ns": 8},
]


def events(rows=ROWS) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    return frame.astype({name: "Int64" for name in ("rank", "step", "lane") if name in frame})


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return write_trace(tmp_path / "t", TraceMeta(ranks=2, hosts=[HostInfo("h0"), HostInfo("h1")]), events())


def test_what_was_written_is_read(trace):
    assert list(trace.events().kind) == ["forward", "lane_allgather", "forward"]
    assert list(trace.events(kinds=["forward"], columns=["rank", "offset"])["rank"]) == [0, 1]
    assert sorted(path.name for path in (trace.path / "events").iterdir()) == [
        "rank=0",
        "rank=1",
        "rank=none",
    ]


@pytest.mark.parametrize(
    "name",
    ["a[1]b", "st*r", "q?", "it's", 'quo"te', "層 и é", "back\\slash", "run=3", "rank=0", "kind=x", "~", "%20", "{b}", "a;b", "-x", "a\nb", "x.parquet"],
)  # fmt: skip
def test_any_name_of_a_folder_will_do(tmp_path, name):
    samples = pd.DataFrame({"t_ns": [1], "process": [1], "subject": ["s"], "name": ["n"], "value": [2.0]})
    for decoy in ("star", "q1", "a1b"):
        write_trace(tmp_path / decoy, TraceMeta(), events(ROWS[:1]))
    trace = write_trace(tmp_path / name / "t", TraceMeta(), events(), samples)
    assert len(trace.events()) == 3 and list(trace.samples().columns) == [
        "t_ns",
        "process",
        "subject",
        "name",
        "value",
    ]


def test_a_relative_path_and_a_link_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trace("t", TraceMeta(), events())
    Path("link").symlink_to("t")
    write_trace("link", TraceMeta(), events(ROWS[:1]))
    assert Path("link").is_symlink() and len(Trace.open("t").events()) == 1


def test_the_folder_that_one_is_in_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="the folder you are in"):
        write_trace(".", TraceMeta(), events())


def test_only_lanes_and_servers(tmp_path):
    trace = write_trace(tmp_path / "t", TraceMeta(), events(ROWS[2:]))
    assert list(trace.events().process) == [3] and trace.step_times().empty


def test_no_events_at_all(tmp_path):
    trace = write_trace(tmp_path / "t", TraceMeta(), pa.Table.from_pylist([], schema=EVENTS))
    assert trace.events().empty and trace.samples().empty and trace.step_times().empty


def test_names_of_other_scripts_and_quotes(tmp_path):
    host = "h'ö\"層"
    rows = [{**ROWS[0], "host": host, "tensor": "weird'; drop table events; --"}]
    meta = TraceMeta(
        hosts=[HostInfo(host, clock_offset_ns=100)], tensors=[TensorInfo("é", None, None, 1, "float32", 0)]
    )
    trace = write_trace(tmp_path / "t", meta, pd.DataFrame(rows))
    assert trace.query("select t_start_ns as t from events where host = ?", [host])["t"].to_list() == [105]
    assert Trace.open(tmp_path / "t").meta == meta


def test_two_hosts_of_one_name_do_not_double_the_events(tmp_path):
    trace = write_trace(tmp_path / "t", TraceMeta(hosts=[HostInfo("h0"), HostInfo("h0")]), events())
    assert len(trace.events()) == 3


def test_files_of_an_older_recorder_have_fewer_columns(trace):
    for file in (trace.path / "events").rglob("*.parquet"):
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["offset", "lane"]), file)
    assert Trace.open(trace.path).events()["offset"].isna().all()
    one = trace.path / "events" / "rank=0" / "part-0.parquet"
    pq.write_table(pq.ParquetFile(one).read().append_column("offset", pa.array([4], pa.int64())), one)
    assert Trace.open(trace.path).query('select sum("offset") as n from events')["n"][0] == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta.pop("format_version"), "has no format_version"),
        (lambda meta: meta.update(format_version=True), "has no format_version"),
        (lambda meta: meta.update(format_version=99), "trace format 99"),
        (lambda meta: meta.update(hosts=5), "hosts is no list"),
        (lambda meta: meta.update(hosts=[7]), r"hosts\[0\]. is no object"),
        (lambda meta: meta["hosts"][0].pop("name"), r"hosts\[0\].*name"),
        (lambda meta: meta["hosts"][0].update(name=5), r"hosts\[0\]\.name is no str"),
        (lambda meta: meta["hosts"][0].update(clock_offset_ns="1"), "clock_offset_ns is no int"),
        (lambda meta: meta["hosts"][0].update(clock_offset_ns=1 << 70), "too large"),
        (lambda meta: meta["hosts"][0].update(clock_drift=float("nan")), "not finite"),
        (lambda meta: meta.update(tensors=[{"name": "w"}]), r"tensors\[0\]"),
        (lambda meta: meta.update(notes=[None]), r"notes\[0\] is no str"),
        (lambda meta: meta.update(settings=[]), "settings is no dict"),
    ],
)
def test_a_meta_file_that_makes_no_sense_is_named(trace, change, message):
    file = trace.path / "meta.json"
    meta = json.loads(file.read_text())
    change(meta)
    file.write_text(json.dumps(meta))
    with pytest.raises(UserError, match=message):
        Trace.open(trace.path)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "\xff", "null"])
def test_a_meta_file_that_is_no_json_is_named(trace, text):
    (trace.path / "meta.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"meta\.json"):
        Trace.open(trace.path)


def test_facts_that_a_newer_recorder_added_are_ignored(trace):
    file = trace.path / "meta.json"
    meta = json.loads(file.read_text())
    meta["weather"] = "fine"
    meta["hosts"][0]["rack"] = 7
    file.write_text(json.dumps(meta))
    assert Trace.open(trace.path).meta.hosts[0].name == "h0"


def test_missing_parts_are_named(trace, tmp_path):
    with pytest.raises(UserError, match="no trace at"):
        Trace.open(tmp_path / "nothing")
    with pytest.raises(UserError, match="name too long"):
        Trace.open(tmp_path / ("a" * 300))
    with pytest.raises(UserError, match=r"meta\.json"):
        Trace.open(trace.path / "meta.json")
    shutil.rmtree(trace.path / "events")
    with pytest.raises(UserError, match="holds no events"):
        Trace.open(trace.path)


def test_files_of_another_kind_are_named(trace):
    one = trace.path / "events" / "rank=0" / "part-0.parquet"
    good = pq.ParquetFile(one).read()
    pq.write_table(good.drop_columns(["kind"]), one)
    with pytest.raises(UserError, match="no column kind"):
        Trace.open(trace.path)
    pq.write_table(good.set_column(0, "step", pa.array(["one"])), one)
    with pytest.raises(UserError, match="column step is string"):
        Trace.open(trace.path)
    one.write_text("hello")
    with pytest.raises(UserError, match="is damaged"):
        Trace.open(trace.path)


def test_damaged_pages_are_one_sentence_wherever_they_are(tmp_path):
    count = 20_000
    table = pa.table(
        {
            "rank": pa.array(np.zeros(count, dtype=np.int32)),
            "process": pa.array(np.arange(count)),
            "kind": pa.array([f"kind{i % 5}" for i in range(count)]),
            "tensor": pa.array([f"t{i}" for i in range(count)]),
            "t_start_ns": pa.array(np.arange(count)),
            "t_end_ns": pa.array(np.arange(count)),
        }
    )
    trace = write_trace(tmp_path / "t", TraceMeta(), table)
    file = trace.path / "events" / "rank=0" / "part-0.parquet"
    good = file.read_bytes()
    chance = random.Random(5)
    refused = 0
    for _ in range(60):
        data = bytearray(good)
        for _ in range(4):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        at = chance.randrange(len(data))
        data[at : at + 300] = bytes(300)
        file.write_bytes(bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data))
        try:
            opened = Trace.open(trace.path)
            opened.query("select count(*), sum(t_start_ns), max(tensor), min(kind), sum(process) from events")
            with opened.connect() as connection:
                for _ in batches(connection, "select * from events"):
                    pass
        except UserError as error:
            assert "is damaged" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 30


def test_a_file_that_goes_away_after_opening_is_one_sentence(trace):
    shutil.rmtree(trace.path / "events")
    with pytest.raises(UserError):
        trace.events()


def test_a_failed_write_leaves_the_older_trace_and_nothing_else(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pyarrow.parquet.write_table", lambda *_, **__: (_ for _ in ()).throw(OSError(28, os.strerror(28)))
    )
    with pytest.raises(UserError, match="No space left"):
        write_trace(trace.path, TraceMeta(), events())
    assert len(Trace.open(trace.path).events()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_nothing_is_left_in_the_folder_that_one_is_in(trace, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    trace.events()
    assert list((tmp_path / "here").iterdir()) == []


def test_two_million_events_are_not_read_to_answer_a_question(tmp_path):
    count = 2_000_000
    table = pa.table(
        {
            "rank": pa.array(np.arange(count, dtype=np.int32) % 4),
            "process": pa.array(np.arange(count) % 4),
            "step": pa.array(np.arange(count, dtype=np.int32) // 100_000),
            "kind": pa.DictionaryArray.from_arrays(
                np.arange(count, dtype=np.int32) % 3, ["push", "ready", "done"]
            ),
            "t_start_ns": pa.array(np.arange(count) * 1000),
            "t_end_ns": pa.array(np.arange(count) * 1000 + 500),
        }
    )
    trace = write_trace(tmp_path / "t", TraceMeta(ranks=4), table)
    tracemalloc.start()
    answer = trace.query(
        "select kind, count(*) as n, sum(t_end_ns - t_start_ns) as ns from events group by kind"
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer["n"].sum() == count and peak < 10e6
    with trace.connect() as connection:
        sizes = [batch.num_rows for batch in batches(connection, "select t_start_ns from events order by 1")]
    assert sum(sizes) == count and max(sizes) < count // 4


def test_a_recorded_trace_that_lost_a_ranks_file_is_refused(tmp_path):
    """Half a copy of a trace would be answered from half the ranks, without a word."""
    whole = Path(__file__).parents[1] / "data" / "replay" / "alexnet-two-hosts"
    shutil.copytree(whole, tmp_path / "t")
    (tmp_path / "t" / "events" / "rank=1" / "part-0.parquet").unlink()
    with pytest.raises(UserError, match="lost the events of rank 1"):
        Trace.open(tmp_path / "t")


def test_a_name_that_is_no_utf_8_is_one_sentence(tmp_path):
    """Folders from other machines; pyarrow and duckdb take names as text only."""
    folder = tmp_path / os.fsdecode(b"bad\xff")
    folder.mkdir()
    for use in (Trace.open, check_target):
        with pytest.raises(UserError, match="no UTF-8: rename"):
            use(folder)
