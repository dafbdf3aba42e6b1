"""Choose the number of lanes: the fewest that come within 1 % of the best, and stock when the gain is not sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UserError
from ..units import format_seconds
from .prediction import Prediction

WITHIN = 0.01
DEFAULT_MIN_GAIN = 0.02


@dataclass(frozen=True)
class Choice:
    """``aux`` lanes a host, and why, in a sentence for the user."""

    aux: int
    reason: str


def choose(predictions: Sequence[Prediction], min_gain: float = DEFAULT_MIN_GAIN) -> Choice:
    """Choose among predictions that differ in ``aux`` only.

    The smallest count within 1 % of the best step time; but 0 where the gain over stock is below `min_gain`
    (a share of the step) or inside the model's error. Raises UserError for an empty list.
    """
    if not predictions:
        raise UserError("nothing to choose from: give at least one aux count")
    ordered = sorted(predictions, key=lambda prediction: prediction.aux)
    best = min(ordered, key=lambda prediction: prediction.step_s)
    chosen = next(p for p in ordered if p.step_s <= best.step_s * (1 + WITHIN))
    stock = next((p for p in ordered if p.aux == 0), None)
    if stock is None or chosen is stock:
        return Choice(chosen.aux, _reason_alone(chosen, stock))
    gain = 1 - chosen.step_s / stock.step_s
    error = _shared_error(chosen, stock)
    if gain < min_gain:
        return Choice(
            0, f"{chosen.aux} lanes would gain {gain:.1%}, less than the {min_gain:.0%} that is asked for"
        )
    if gain <= error:
        return Choice(
            0,
            f"{chosen.aux} lanes would gain {gain:.1%}, which is within the model's error of {error:.1%}; "
            f"to decide, measure aux 0 and {chosen.aux} for 20 steps each",
        )
    better = "the best" if chosen is best else f"within 1 % of the best ({best.aux})"
    more = "more were not asked for" if chosen is ordered[-1] else "more lanes add nothing"
    return Choice(
        chosen.aux,
        f"{chosen.aux} lanes take {format_seconds(chosen.step_s)} a step instead of {format_seconds(stock.step_s)} "
        f"({stock.step_s / chosen.step_s:.2f} times as fast), {better}; {more}",
    )


def _reason_alone(chosen: Prediction, stock: Prediction | None) -> str:
    if stock is None:
        return f"{chosen.aux} lanes are the fewest within 1 % of the best; stock Horovod was not among the counts"
    return "no lane count is faster than stock Horovod by more than 1 %"


def _shared_error(a: Prediction, b: Prediction) -> float:
    """Relative 90 % error of the difference of two predictions.

    They share the workload and most costs, so their errors are mostly common; half of the larger one is kept.
    """
    return 0.5 * max(a.high_s / a.step_s - 1, b.high_s / b.step_s - 1)
