"""The answer of a tuning as plain values: printed, written as JSON, kept in the cache, read back from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..errors import UserError
from ..model.prediction import Prediction
from .knobs import Knobs

FORMAT_VERSION = 1


@dataclass(frozen=True)
class PredictedStep:
    """The predicted step time with `aux` lanes: median, bounds of the median, bounds of single steps; in s."""

    aux: int
    step_s: float
    low_s: float
    high_s: float
    p5_s: float
    p95_s: float
    exposed_s: float

    @classmethod
    def of(cls, prediction: Prediction) -> PredictedStep:
        """The figures of `prediction`."""
        return cls(**{name: getattr(prediction, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class TuningAnswer:
    """What was chosen and why, what it rests on, what it cost.

    ``predicted`` is ordered by count from 0; 0 is stock Horovod with its recorded settings. ``knobs`` None: as
    the user has them. ``tuning_s`` is the wall time of everything; ``notes`` are sentences for the user.
    """

    chosen_aux: int
    reason: str
    predicted: list[PredictedStep]
    tuning_s: float
    folder: str
    knobs: Knobs | None = None
    chosen: PredictedStep | None = None
    notes: list[str] = field(default_factory=list)
    cached: bool = False

    @property
    def expected(self) -> PredictedStep:
        """The prediction for what was chosen."""
        return self.chosen or self.predicted[self.chosen_aux]

    @property
    def gain_s(self) -> float:
        """Predicted seconds won per step against stock Horovod."""
        return self.predicted[0].step_s - self.expected.step_s

    @property
    def payback_steps(self) -> int | None:
        """Steps of training after which the tuning's own time is earned back; None when nothing is won."""
        return None if self.gain_s <= 0 else round(self.tuning_s / self.gain_s) + 1

    def reused(self, seconds: float, note: str) -> TuningAnswer:
        """The same answer, found again in `seconds`."""
        return replace(self, tuning_s=seconds, cached=True, notes=[note])

    def to_json(self) -> dict[str, Any]:
        """The answer for programs."""
        return {
            "format_version": FORMAT_VERSION,
            **asdict(self),
            "knobs": None if self.knobs is None else self.knobs.to_json(),
            "payback_steps": self.payback_steps,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TuningAnswer:
        """The answer of `to_json`; raises UserError for another format or damaged content."""
        if data.get("format_version") != FORMAT_VERSION:
            raise UserError(f"tuning has format {data.get('format_version')}, this reads {FORMAT_VERSION}")
        values = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        try:
            values["predicted"] = [PredictedStep(**row) for row in values["predicted"]]
            values["knobs"] = None if values["knobs"] is None else Knobs(**values["knobs"])
            values["chosen"] = None if values["chosen"] is None else PredictedStep(**values["chosen"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise UserError(f"tuning is damaged ({error}); tune again with --no-cache") from None


def command_of(answer: TuningAnswer, command: Sequence[str]) -> list[str]:
    """The words that run `command` as chosen, to show to the user."""
    knobs = [] if answer.knobs is None else answer.knobs.options()
    return ["vsketchdlc", "run", "--aux", str(answer.chosen_aux), *knobs, "--", *command]
