"""The sentences that a suite's page, its Markdown and its lines on the terminal have in common."""

from __future__ import annotations

from .scores import Check, Score, lanes

__all__ = ["check_value", "headline", "lab_limits", "lanes"]


def check_value(check: Check) -> str:
    """A target's value, or that there is none."""
    return "nothing to judge by" if check.value is None else f"{100 * check.value:.1f} %"


def headline(score: Score) -> str:
    """What came out, in one line."""
    error = score.mean_error()
    if error is None:
        return f"Suite {score.suite.name}: no point to judge yet"
    left_out = len(score.points) - len(score.judged)
    beside = f", {left_out} more were disturbed" if left_out else ""
    return f"Suite {score.suite.name}: mean error {100 * error:.1f} % over {len(score.judged)} points{beside}"


def lab_limits(score: Score) -> list[str]:
    """What the labs of this suite cannot show, each sentence once."""
    return list(dict.fromkeys(line for case in score.cases for line in case.case.place.spec.limits()))
