"""The ``validate`` command: predicted against measured on real runs, by suites of scenarios."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import answer
from ..units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from .records import Records
    from .scores import Score
    from .suite import Suite


def validate(
    suite: Annotated[
        str, typer.Option("--suite", help="quick, full, invalidate, smoke, or a TOML file.")
    ] = "quick",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the results; default validate-SUITE.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan and its time.")] = False,
    report_only: Annotated[
        bool, typer.Option("--report", help="Run nothing: show what the folder holds.")
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help="Begin no scenario that would end later than this, e.g. 60min.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Most jobs to add where runs are noisy.", min=0, max=10)] = 2,
    markdown: Annotated[Path | None, typer.Option(help="Also write the tables as Markdown to FILE.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Also write the result to FILE, or - for stdout.")
    ] = None,
) -> int:
    """Train for real in the lab and hold the model's predictions, made before, against it.

    A stopped suite goes on where it was. Exit status 1 when a target is missed or a scenario is not run yet.

    Example: vsketchdlc validate --suite quick -o validate-quick
    """
    from .records import Records
    from .scores import score
    from .suite import load_suite

    asked = load_suite(suite)
    folder = (output or Path(f"validate-{asked.name}")).resolve()
    say = (
        (lambda _: None) if quiet else (lambda line: print(f"validate: {line}", file=sys.stderr, flush=True))
    )
    if dry_run:
        _print_plan(asked)
        return 0
    if report_only:
        records = Records.read(folder, asked)
    else:
        budget_s = None if budget is None else parse_seconds(budget, what="--budget")
        records = _run(asked, folder, repeats, budget_s, say)
    found = score(asked, records)
    _write(found, folder, markdown)
    if json_target is not None:
        answer.write_json(json_target, found.to_json())
    if json_target != "-":
        _print(found, folder)
    return 0 if found.good else 1


def _run(
    asked: Suite, folder: Path, repeats: int, budget_s: float | None, say: Callable[[str], None]
) -> Records:
    from .campaign import Campaign
    from .lab.rights import demand
    from .live import demand_live
    from .plan import suite_seconds
    from .scores import score

    demand()
    demand_live("'vsketchdlc validate' trains for real and")
    say(f"{len(asked.cases)} scenarios, {asked.points} points, about {_minutes(suite_seconds(asked))} in all")
    campaign = Campaign(asked, folder, say, repeats=repeats)
    try:
        campaign.run(budget_s, lambda records: _write(score(asked, records), folder, None))
    except KeyboardInterrupt:
        say("stopped; the same command goes on where it was")
        raise
    return campaign.records


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _print_plan(suite: Suite) -> None:
    from rich.table import Table

    from .plan import calibration_seconds, case_seconds, suite_seconds

    table = Table("scenario", "where", "lanes", "calibration", "about", title=f"Suite {suite.name}")
    seen: set[str] = set()
    for case in suite.cases:
        first = case.calibration.name not in seen
        seen.add(case.calibration.name)
        seconds = case_seconds(case) + (calibration_seconds(case.calibration, case.stock_s) if first else 0.0)
        table.add_row(
            case.training.describe(),
            case.place.describe(),
            " ".join(map(str, case.counts)),
            f"{case.calibration.name}{' (run first)' if first else ''}",
            format_seconds(seconds),
        )
    answer.stdout.print(table)
    answer.stdout.print(
        f"{len(suite.cases)} scenarios, {suite.points} points, about {_minutes(suite_seconds(suite))}. Nothing was run."
    )


def _write(found: Score, folder: Path, markdown: Path | None) -> None:
    from .validate_markdown import markdown_tables
    from .validate_page import validate_page

    answer.write_json(str(folder / "result.json"), found.to_json())
    answer.write_text_whole(folder / "report.html", validate_page(found))
    if markdown is not None:
        answer.write_text_whole(markdown, markdown_tables(found))


def _print(found: Score, folder: Path) -> None:
    from rich.table import Table

    from .wording import check_value

    table = Table("scenario", "lanes", "predicted", "90 % interval", "measured", "error", "remarks")
    for case in found.cases:
        for number, point in enumerate(case.points):
            mark = " <- chosen" if point.aux == case.chosen_aux else ""
            table.add_row(
                case.case.name if number == 0 else "",
                f"{point.aux}{mark}",
                format_seconds(point.step_s),
                f"{format_seconds(point.low_s)} to {format_seconds(point.high_s)}",
                format_seconds(point.measured.step_s),
                f"{100 * point.error:+.1f} %",
                point.measured.disturbed or point.measured.noisy or "",
            )
    answer.stdout.print(table)
    for check in found.checks():
        verdict = "reached" if check.reached else "MISSED "
        answer.stdout.print(f"{verdict}  {check.what}: {check_value(check)} (target {check.target})")
    for case in found.cases:
        for note in case.notes:
            answer.stdout.print(f"Note on {case.case.name}: {note}")
    left_out = len(found.points) - len(found.judged)
    if left_out:
        answer.stdout.print(f"{left_out} of {len(found.points)} points were disturbed: shown, not judged.")
    if found.missing:
        answer.stdout.print(f"Not run: {', '.join(found.missing)}")
    answer.stdout.print(f"Written: {folder}/report.html, result.json, results.jsonl")
    if found.missing:
        answer.stdout.print(
            f"Next: vsketchdlc validate --suite {found.suite.name} -o {answer.typed(folder)} goes on where this stopped"
        )
    else:
        answer.stdout.print(f"Next: open {answer.typed(folder)}/report.html")
