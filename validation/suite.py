"""A validation suite: which trainings run where, from which calibration they are predicted, and what must be reached.

A TOML file (see docs/validation.md); those that come with vsketchdlc are in ``suites/``.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..units import parse_seconds
from .place import Place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "suites"
MAX_COUNT = 64


@dataclass(frozen=True)
class Training:
    """What is trained: a network of Gluon's model zoo (or ``tiny``, ``giant``), images a rank and their width."""

    name: str
    network: str
    batch: int = 4
    image: int = 224
    fp16: bool = False

    @property
    def words(self) -> list[str]:
        """As options of `training.py`."""
        words = ["--network", self.network, "--batch", str(self.batch), "--image", str(self.image)]
        return [*words, "--fp16"] if self.fp16 else words

    def describe(self) -> str:
        """``resnet50_v1, batch 4, images 64 x 64``."""
        image = "" if self.network in ("tiny", "giant") else f", images {self.image} x {self.image}"
        return f"{self.network}, batch {self.batch}{image}{', fp16' if self.fp16 else ''}"


@dataclass(frozen=True)
class CalibrationRun:
    """A traced trial of `steps` steps of stock Horovod and a lane probe, from which other runs are predicted."""

    name: str
    training: Training
    place: Place
    steps: int
    probe_s: float
    aux_max: int


@dataclass(frozen=True)
class Case:
    """One training at one place with several lane counts: predicted from `calibration`, then run.

    Each count is visited `visits` times for `steps` steps after `warm_up`. `stock_check` also runs it with nothing
    preloaded. `stock_s` is about what a stock step takes: for the plan only.
    """

    name: str
    training: Training
    place: Place
    calibration: CalibrationRun
    counts: tuple[int, ...]
    steps: int
    warm_up: int
    visits: int
    seeds: tuple[int, ...]
    stock_check: bool
    stock_s: float

    @property
    def elsewhere(self) -> bool:
        """Whether it runs with another host count or network than its calibration run."""
        return self.place.differs_from(self.calibration.place)


@dataclass(frozen=True)
class Targets:
    """What a suite must reach: relative errors as shares of 1; None is not asked for."""

    mean_error: float | None = None
    p90_error: float | None = None
    worst_error: float | None = None
    elsewhere_mean_error: float | None = None
    mean_regret: float | None = None
    worst_regret: float | None = None
    coverage_low: float | None = None
    coverage_high: float | None = None
    order: bool = False


@dataclass(frozen=True)
class Suite:
    """All cases in the order in which they run; `digest` is that of the file's content."""

    name: str
    cases: tuple[Case, ...]
    targets: Targets
    digest: str

    @property
    def points(self) -> int:
        """Pairs of a case and a lane count."""
        return sum(len(case.counts) for case in self.cases)

    @property
    def calibrations(self) -> list[CalibrationRun]:
        """The calibration runs that the cases need, in the order of their first use."""
        return list({case.calibration.name: case.calibration for case in self.cases}.values())


def load_suite(asked: str) -> Suite:
    """The suite of that name, or the one in the file `asked`. Raises UserError with what is wrong in it."""
    known = sorted(path.stem for path in FOLDER.glob("*.toml"))
    path = FOLDER / f"{asked}.toml" if asked in known else Path(asked)
    try:
        content = path.read_bytes()
        table = tomllib.loads(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(
            f"cannot read suite {asked}: {reason}; there are {', '.join(known)}, or name a file"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"suite {asked} is not valid TOML: {error}") from None
    try:
        return _Reader(table).suite(path.stem, hashlib.sha256(content).hexdigest())
    except UserError as error:
        raise UserError(f"suite {asked}: {error}") from None


_TOP = (
    "counts",
    "steps",
    "warm_up",
    "visits",
    "seeds",
    "training",
    "place",
    "calibration",
    "scenario",
    "targets",
)
_CASE = (
    "name",
    "training",
    "place",
    "calibration",
    "counts",
    "steps",
    "warm_up",
    "visits",
    "seeds",
    "stock_check",
)


class _Reader:
    """Turns the tables of one file into a `Suite`."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        _known(table, _TOP, "the suite")
        self._table = table
        self._trainings = {name: _training(name, entry) for name, entry in self._tables("training")}
        self._places = {name: Place.from_table(name, entry) for name, entry in self._tables("place")}
        self._calibrations = {
            name: self._calibration(name, entry) for name, entry in self._tables("calibration")
        }

    def suite(self, name: str, digest: str) -> Suite:
        scenarios = self._table.get("scenario", [])
        if not isinstance(scenarios, list) or not scenarios:
            raise UserError("it has no [[scenario]]; add one with training and place")
        cases = tuple(self._case(entry, number) for number, entry in enumerate(scenarios, 1))
        names = [case.name for case in cases]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UserError(f"two scenarios are named '{min(twice)}'; give one another name")
        return Suite(name, cases, _targets(self._table.get("targets", {})), digest)

    def _tables(self, key: str) -> list[tuple[str, Mapping[str, Any]]]:
        tables = self._table.get(key, {})
        if not isinstance(tables, Mapping) or not all(
            isinstance(entry, Mapping) for entry in tables.values()
        ):
            raise UserError(f"'{key}' must be tables, like [{key}.one]")
        return list(tables.items())

    def _calibration(self, name: str, table: Mapping[str, Any]) -> CalibrationRun:
        where = f"[calibration.{name}]"
        _known(table, ("training", "place", "steps", "probe", "aux_max"), where)
        return CalibrationRun(
            name,
            _named(self._trainings, table.get("training", name), "training", where),
            _named(self._places, table.get("place"), "place", where),
            _whole(table.get("steps", 12), f"{where}: steps", 4, 1000),
            parse_seconds(str(table.get("probe", "8 s")), what=f"{where}: probe"),
            _whole(table.get("aux_max", 6), f"{where}: aux_max", 1, MAX_COUNT),
        )

    def _case(self, table: Mapping[str, Any], number: int) -> Case:
        where = f"scenario {number}"
        _known(table, (*_CASE, "stock_s"), where)
        common = {
            key: self._table[key]
            for key in _CASE
            if key in self._table and key not in ("training", "place", "calibration")
        }
        facts = {
            "counts": [0, 1, 2, 4],
            "steps": 10,
            "warm_up": 2,
            "visits": 2,
            "seeds": [1],
            **common,
            **table,
        }
        training = _named(self._trainings, facts.get("training"), "training", where)
        place = _named(self._places, facts.get("place"), "place", where)
        calibration = _named(
            self._calibrations, facts.get("calibration", training.name), "calibration", where
        )
        if (training.network, training.image) != (calibration.training.network, calibration.training.image):
            raise UserError(f"{where}: calibration '{calibration.name}' is of another network or image width")
        if training.fp16 != calibration.training.fp16 and calibration.training.fp16:
            raise UserError(
                f"{where}: calibration '{calibration.name}' is of fp16 gradients, the scenario is not"
            )
        return Case(
            name=str(facts.get("name", f"{training.name} @ {place.name}")),
            training=training,
            place=place,
            calibration=calibration,
            counts=_counts(facts["counts"], where),
            steps=_whole(facts["steps"], f"{where}: steps", 3, 1000),
            warm_up=_whole(facts["warm_up"], f"{where}: warm_up", 1, 100),
            visits=_whole(facts["visits"], f"{where}: visits", 1, 20),
            seeds=_seeds(facts["seeds"], where),
            stock_check=facts.get("stock_check", False) is True,
            stock_s=float(facts.get("stock_s", 2.0)),
        )


def _training(name: str, table: Mapping[str, Any]) -> Training:
    where = f"[training.{name}]"
    _known(table, ("network", "batch", "image", "fp16"), where)
    return Training(
        name,
        str(table.get("network", name)),
        _whole(table.get("batch", 4), f"{where}: batch", 1, 4096),
        _whole(table.get("image", 224), f"{where}: image", 8, 1024),
        table.get("fp16", False) is True,
    )


def _targets(table: Mapping[str, Any]) -> Targets:
    _known(table, tuple(Targets.__dataclass_fields__), "[targets]")
    for name, value in table.items():
        if name != "order" and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10
        ):
            raise UserError(f"[targets]: {name} must be a share of 1, like 0.05")
    return Targets(**table)


def _named(known: Mapping[str, Any], name: Any, what: str, where: str) -> Any:
    if name not in known:
        raise UserError(f"{where}: there is no [{what}.{name}]; there are {', '.join(known) or 'none'}")
    return known[name]


def _counts(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) < 2 or 0 not in value or len(set(value)) != len(value):
        raise UserError(
            f"{where}: counts must be two or more different lane counts with 0 among them, like [0, 1, 2, 4]"
        )
    return tuple(_whole(count, f"{where}: counts", 0, MAX_COUNT) for count in sorted(value))


def _seeds(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where}: seeds must be a list of numbers, like [1, 2]")
    return tuple(_whole(seed, f"{where}: seeds", 0, 2**31 - 1) for seed in value)


def _whole(value: object, what: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise UserError(f"{what} is {value}; it must be a whole number from {low} to {high}")
    return value


def _known(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UserError(f"{where}: unknown key '{key}'; allowed are {', '.join(known)}")
