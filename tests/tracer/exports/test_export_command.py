"""``vsketchdlc export`` as a user types it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner
from vsketchdlc.cli import app
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.trace import HostInfo, TraceMeta, write_trace


def run(*arguments: object) -> str:
    answer = CliRunner().invoke(app, ["export", *map(str, arguments)], catch_exceptions=True)
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.output


def test_the_file_is_named_with_what_it_holds(training_trace, chrome_check, tmp_path):
    text = run(training_trace().path, "-f", "chrome", "-o", tmp_path / "out.json")
    found = chrome_check.check(tmp_path / "out.json")
    assert f"{tmp_path}/out.json: {len(found.slices)} slices" in text and "ui.perfetto.dev" in text


def test_hosts_without_a_common_clock_get_pictures_of_their_own(chrome_check, tmp_path):
    rows = [
        {"rank": r, "host": f"h{r}", "process": r, "kind": "barrier", "t_start_ns": 7, "t_end_ns": 9}
        for r in range(3)
    ]
    hosts = [HostInfo("h0"), HostInfo("h1", clock_offset_ns=5), HostInfo("h2", clock_offset_ns=None)]
    trace = write_trace(tmp_path / "t", TraceMeta(ranks=3, hosts=hosts), pd.DataFrame(rows))
    text = run(trace.path, "-o", tmp_path / "out.json")
    assert set(chrome_check.check(tmp_path / "out.json").processes) == {0, 1}
    assert set(chrome_check.check(tmp_path / "out.h2.json").processes) == {2}
    assert "the clock of h2 could not be aligned" in text


@pytest.mark.parametrize("steps", ["x", "3:1", "1:2:3"])
def test_steps_that_make_no_sense_are_refused(training_trace, tmp_path, steps):
    with pytest.raises(UserError, match="--steps"):
        run(training_trace().path, "-o", tmp_path / "out.json", "--steps", steps)


def test_a_folder_is_not_a_file(training_trace, tmp_path):
    with pytest.raises(UserError, match="it is a folder"):
        run(training_trace().path, "-o", tmp_path)


@pytest.mark.parametrize(
    ("format", "name", "files"),
    [
        ("perfetto", "out.pftrace", ["out.pftrace"]),
        ("perfetto-archive", "out.zip", ["out.zip"]),
        ("chakra", "out", ["out.0.et", "out.1.et"]),
    ],
)
def test_every_format_says_what_it_wrote(training_trace, tmp_path, format, name, files):
    report = tmp_path / "report.json"
    text = run(training_trace().path, "-f", format, "-o", tmp_path / name, "--json", report)
    written = json.loads(report.read_text())
    assert written["format"] == format and written["notes"] == []
    assert [row["path"] for row in written["files"]] == [str(tmp_path / file) for file in files]
    assert all((tmp_path / file).stat().st_size > 0 for file in files)
    assert all(f"{tmp_path / file}: " in text for file in files)
