"""``vsketchdlc import`` as a user types it; an imported trace is a trace like any other."""

from __future__ import annotations

import json
import tarfile

import pytest
from typer.testing import CliRunner
from vsketchdlc.cli import app
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.trace import Trace


def run(*arguments: object) -> str:
    answer = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.output


def test_a_timeline_becomes_a_trace_that_can_be_exported(shapes, tmp_path):
    (tmp_path / "t.json").write_bytes(shapes.as_horovod_writes(shapes.horovod(), closed=False))
    text = run("import", tmp_path / "t.json", "-o", tmp_path / "trace")
    assert 'repaired: missing "]" (t.json)' in text and "events of 2 ranks from horovod-timeline" in text
    trace = Trace.open(tmp_path / "trace")
    assert trace.meta.source == "imported:horovod-timeline" and len(trace.samples()) == 2
    run("export", tmp_path / "trace", "-o", tmp_path / "out.json")
    names = {event["name"] for event in json.loads((tmp_path / "out.json").read_text())}
    assert {"allreduce", "ready horovod_allreduce.0", "done horovod_allreduce.2", "cycle horovod"} <= names


def test_every_format_is_found_out(shapes, tmp_path):
    for name, document in {
        "mxnet": shapes.mxnet(),
        "kineto": shapes.kineto(),
        "chakra": shapes.chakra(),
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
        report = tmp_path / f"{name}.report"
        run("import", tmp_path / f"{name}.json", "-o", tmp_path / name, "--json", report, "-q")
        answer = json.loads(report.read_text())
        assert name in answer["source"] and answer["events"] > 0
        run("export", tmp_path / name, "-o", tmp_path / f"{name}.out.json")


def test_files_of_two_formats_are_refused(shapes, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(shapes.mxnet()))
    (tmp_path / "b.json").write_text(json.dumps(shapes.kineto()))
    with pytest.raises(UserError, match=r"different formats \(kineto, mxnet\)"):
        run("import", tmp_path, "-o", tmp_path / "trace")


def test_two_timelines_are_two_runs(shapes, tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(shapes.as_horovod_writes(shapes.horovod()))
    with pytest.raises(UserError, match="2 horovod files are 2 runs"):
        run("import", tmp_path / "a.json", tmp_path / "b.json", "-o", tmp_path / "trace")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", r"it is empty \(byte offset 0\)"),
        (b"hello", r"no complete event can be found in it \(byte offset 0\)"),
        (b'[{"ph": "X", "name": "a", "ts": 1, "dur": 1}]', "no format that can be imported"),
    ],
)
def test_what_cannot_be_read_leaves_the_older_trace(shapes, tmp_path, content, message):
    (tmp_path / "good.json").write_text(json.dumps(shapes.kineto()))
    run("import", tmp_path / "good.json", "-o", tmp_path / "trace")
    before = len(Trace.open(tmp_path / "trace").events())
    if content is not None:
        (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        run("import", tmp_path / "bad.json", "-o", tmp_path / "trace")
    assert len(Trace.open(tmp_path / "trace").events()) == before


def test_an_empty_folder_and_a_folder_that_is_no_trace_are_refused(shapes, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no files that end in"):
        run("import", tmp_path / "empty", "-o", tmp_path / "trace")
    (tmp_path / "good.json").write_text(json.dumps(shapes.kineto()))
    with pytest.raises(UserError, match="is not a trace"):
        run("import", tmp_path / "good.json", "-o", tmp_path)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    for name in ("/dev/zero", tmp_path / ("a" * 300)):
        with pytest.raises(UserError, match=r"is not a file|name too long"):
            run("import", name, "-o", tmp_path / "trace")


def test_a_tar_archive_is_to_be_unpacked_first(shapes, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(shapes.kineto()))
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "t.json", "t.json")
    with pytest.raises(UserError, match="tar -xf"):
        run("import", tmp_path / "t.tar.gz", "-o", tmp_path / "trace")
