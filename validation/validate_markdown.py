"""A suite's tables as Markdown, for docs/accuracy.md."""

from __future__ import annotations

from ..units import format_seconds
from .scores import CaseScore, Score
from .wording import check_value, lanes


def markdown_tables(score: Score) -> str:
    """Targets, then a row for each scenario with the error at each count, then what is to be said of the runs."""
    counts = sorted({point.aux for point in score.points})
    lines = ["| what | value | must be |", "|---|---:|---:|"]
    lines += [f"| {check.what} | {check_value(check)} | {check.target} |" for check in score.checks()]
    heads = [f"{lanes(aux)}: measured, error" for aux in counts]
    lines += ["", f"| training | where | {' | '.join(heads)} | chosen | regret |"]
    lines += ["|---|---|" + "---:|" * (len(counts) + 2)]
    lines += [_row(case, counts) for case in score.cases]
    notes = [f"* {case.case.name}: {note}." for case in score.cases for note in case.notes]
    if score.missing:
        notes.append(f"* Not run: {', '.join(score.missing)}.")
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def _row(score: CaseScore, counts: list[int]) -> str:
    points = {point.aux: point for point in score.points}
    cells = []
    for aux in counts:
        point = points.get(aux)
        if point is None:
            cells.append("-")
            continue
        mark = "" if point.relied_on else " (disturbed)"
        cells.append(f"{format_seconds(point.measured.step_s)}, {100 * point.error:+.1f} %{mark}")
    case = score.case
    alike = "" if case.elsewhere else " (hosts and network of the calibration)"
    place = f"{case.place.describe()}{alike}"
    chosen = f"{score.chosen_aux} | {100 * score.regret:.1f} %"
    return f"| {case.training.describe()} | {place} | {' | '.join(cells)} | {chosen} |"
