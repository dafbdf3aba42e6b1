"""`validate` without running anything: its log, what it trusts, its arithmetic and its pages; and one real smoke."""

import json
import sys

import pytest
from vsketchdlc import cli
from vsketchdlc.errors import UserError
from vsketchdlc.validation.records import FILE_NAME, Records
from vsketchdlc.validation.scores import score
from vsketchdlc.validation.suite import load_suite
from vsketchdlc.validation.trust import Visit, measured, needs_another
from vsketchdlc.validation.validate_markdown import markdown_tables
from vsketchdlc.validation.validate_page import validate_page


def run_line(scenario, seconds, foreign=0.0, preloaded=True):
    blocks = [
        {"aux": aux, "step_s": [9.0, *steps], "own_cores": 1.0, "foreign_cores": foreign}
        for aux, steps in seconds.items()
    ]
    line = {"kind": "run", "scenario": scenario, "preloaded": preloaded, "seed": 1, "warm_up": 1}
    return {**line, "blocks": blocks, "collisions": []}


@pytest.fixture
def told():
    return []


@pytest.fixture
def log(tmp_path, told):
    """A log of the smoke suite in which all is predicted and measured."""
    suite = load_suite("smoke")
    (case,) = suite.cases
    records = Records.open(tmp_path, suite, told.append)
    place = {"folder": "calibrations/x", "reasons": []}
    records.append({"kind": "calibration", "name": case.calibration.name, "trusted": True, **place})
    rows = [
        {"aux": aux, "step_s": step_s, "low_s": 0.9 * step_s, "high_s": 1.1 * step_s}
        for aux, step_s in ((0, 2.0), (1, 1.1), (3, 0.6))
    ]
    said = {"predicted": rows, "chosen_aux": 3, "reason": "3 lanes <are> enough"}
    records.append({"kind": "prediction", "scenario": case.name, **said})
    records.append(run_line(case.name, {0: [2.0, 2.0], 1: [1.0, 1.0], 3: [0.5, 0.5]}))
    return records


def test_errors_regret_coverage_and_targets(log):
    found = score(load_suite("smoke"), log)
    assert [round(point.error, 3) for point in found.points] == [0.0, 0.1, 0.2]
    assert found.mean_error() == pytest.approx(0.1)
    assert found.coverage == pytest.approx(2 / 3)
    assert found.cases[0].regret == 0.0
    assert found.good
    assert {check.what for check in found.checks()} == {
        "worst error",
        "scenarios with the counts in the right order",
    }


def test_a_wrong_choice_is_regretted_and_a_wrong_order_is_told(log):
    log.of("prediction")[0]["chosen_aux"] = 1
    log.of("prediction")[0]["predicted"][2]["step_s"] = 1.5
    found = score(load_suite("smoke"), log)
    assert found.cases[0].regret == pytest.approx(1.0)
    assert not found.cases[0].in_order
    assert not found.good


def test_a_disturbed_point_is_shown_and_not_judged(log):
    scenario = log.of("run")[0]["scenario"]
    log.lines = [line for line in log.lines if line["kind"] != "run"]
    log.append(run_line(scenario, {0: [2.0, 2.0], 1: [1.0, 1.0], 3: [5.0, 5.0]}, foreign=9.0))
    found = score(load_suite("smoke"), log)
    assert len(found.points) == 3 and found.judged == []
    assert not found.good
    assert "3 lanes not judged: other programs used 9.0 cores" in validate_page(found)
    assert "(disturbed)" in markdown_tables(found)


def test_what_is_not_run_is_named(log):
    log.lines = [line for line in log.lines if line["kind"] != "run"]
    found = score(load_suite("smoke"), log)
    assert found.missing == ("squeezenet @ quicker",)
    assert not found.good
    assert "Not run yet: squeezenet @ quicker" in validate_page(found)


def test_pages_stand_alone_and_escape_what_they_quote(log):
    scenario = log.of("run")[0]["scenario"]
    log.append(run_line(scenario, {0: [2.1, 2.1]}, preloaded=False))
    page = validate_page(score(load_suite("smoke"), log))
    assert 'src="http' not in page
    assert "3 lanes &lt;are&gt; enough" in page
    assert "nothing preloaded took 2.1 s" in page
    assert "| 1 s, +10.0 % |" in markdown_tables(score(load_suite("smoke"), log))


def test_noise_asks_for_another_visit():
    calm, wild = Visit(0, [1.0, 1.01, 0.99], 0.1), Visit(0, [1.0, 1.4, 0.8], 0.0)
    assert not needs_another([calm, calm], 2, cores=2)
    assert needs_another([calm, wild], 2, cores=2)
    assert needs_another([calm, Visit(0, [1.0, 1.0, 1.0], 1.0)], 2, cores=2)
    assert needs_another([calm, Visit(0, [1.0, 1.0, 1.0], 0.0, collided=True)], 2, cores=2)
    assert measured([calm, Visit(0, [3.0, 3.0, 3.0], 1.0)], 2).step_s == 1.0
    assert measured([calm, Visit(0, [1.3, 1.3, 1.3], 0.0)], 2).noisy is not None
    assert measured([Visit(0, [3.0, 3.0], 1.0)], 2).disturbed == "other programs used 1.0 cores"


def test_a_half_written_line_is_told_and_its_run_done_again(log, told, tmp_path):
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"kind": "run", "scen')
    again = Records.open(tmp_path, load_suite("smoke"), told.append)
    assert any("half-written" in line for line in told)
    assert len(again.of("run")) == 1
    assert (tmp_path / FILE_NAME).read_text().endswith("}\n")


def test_a_damaged_line_in_the_middle_is_refused_by_its_number(log, tmp_path):
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "garbage\n", *lines[2:]]))
    with pytest.raises(UserError, match="line 3 is damaged"):
        Records.open(tmp_path, load_suite("smoke"), lambda _: None)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("digest", "0" * 64, "content of the suite file"),
        ("vsketchdlc", "9.9", "another vsketchdlc"),
        ("suite", "x", "another suite"),
    ],
)
def test_a_log_of_another_suite_or_version_is_refused_by_name(log, tmp_path, key, value, said):
    path = tmp_path / FILE_NAME
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), key: value}), *rest]) + "\n")
    with pytest.raises(UserError, match=said):
        Records.open(tmp_path, load_suite("smoke"), lambda _: None)


def test_the_plan_is_printed_and_nothing_is_run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["vsketchdlc", "validate", "--suite", "quick", "--dry-run"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    assert "Nothing was run" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
