"""A calibration: fitted costs with intervals, what identified each, and how well the fit explains its data.

Made by `model.fitting.calibrate`; kept as JSON. `Calibration.prior()` is the one without any data.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..answer import write_text_whole
from ..errors import UserError
from .cluster import Cluster
from .parameters import INFO, Parameters

FORMAT_VERSION = 2
"""2 added ``disturbed``."""
NETWORK_UNITS = {"flow_cap_bits_per_s": "bit/s", "nic_bits_per_s": "bit/s"}
_RANGES = {
    "hosts": (0, 65536),
    "ranks_per_host": (1, 1024),
    "cores": (1e-3, 4096),
    "latency_s": (0, 10),
    "model_error": (0, 10),
}
Z90 = 1.6448536269514722
"""Half width of a normal 90 % interval in standard deviations."""


@dataclass(frozen=True)
class Fitted:
    """One parameter: value, unit, 90 % interval, whether data identified it, and which did (or why not)."""

    value: float
    unit: str
    low: float
    high: float
    identified: bool
    source: str


@dataclass(frozen=True)
class Calibration:
    """All parameters of a model, network included, with the covariance of their logarithms.

    ``entries`` has every field of `Parameters` and, where a trace or probe gave them, ``nic_bits_per_s`` and
    ``flow_cap_bits_per_s``. ``covariance`` belongs to ``fitted_names``. ``model_error`` is the relative
    standard deviation of a step time that remains when all parameters are right; ``residuals`` are relative
    errors of the fit by kind of data; ``notes`` are sentences for the user. ``disturbed`` says, with its evidence, that
    other programs ran beside the trial (already in ``model_error``); None: nothing like it was seen.
    """

    entries: dict[str, Fitted]
    fitted_names: list[str] = field(default_factory=list)
    covariance: list[list[float]] = field(default_factory=list)
    hosts: int = 0
    ranks_per_host: int = 1
    cores: float = 8.0
    latency_s: float = 50e-6
    model_error: float = 0.10
    residuals: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    disturbed: str | None = None

    @classmethod
    def prior(cls) -> Calibration:
        """Typical values of current server cores, nothing measured: wide intervals."""
        entries = {}
        for name, info in INFO.items():
            value = float(getattr(Parameters(), name))
            entries[name] = Fitted(value, info.unit, value / info.factor, value * info.factor, False, "prior")
        names = list(INFO)
        variances = [(math.log(INFO[name].factor) / Z90) ** 2 for name in names]
        return cls(entries, names, np.diag(variances).tolist(), model_error=0.10)

    @property
    def parameters(self) -> Parameters:
        """The costs as the simulator takes them."""
        return Parameters(**{name: self.entries[name].value for name in INFO})

    def value(self, name: str) -> float | None:
        """Value of one entry, None when there is none."""
        return self.entries[name].value if name in self.entries else None

    def moved(self, name: str, log_change: float) -> Calibration:
        """The same with one parameter multiplied by exp(`log_change`): for derivatives and draws."""
        entry = self.entries[name]
        changed = dataclasses.replace(entry, value=entry.value * math.exp(log_change))
        return dataclasses.replace(self, entries={**self.entries, name: changed})

    def cluster(self, **changes: Any) -> Cluster:
        """A star like the one the data came from; `changes` are arguments of `Cluster.star`."""
        settings: dict[str, Any] = {
            "hosts": self.hosts or 2,
            "ranks_per_host": self.ranks_per_host,
            "cores": self.cores,
            "latency_s": self.latency_s,
            "nic_bits_per_s": self.value("nic_bits_per_s") or 10e9,
            "flow_cap_bits_per_s": self.value("flow_cap_bits_per_s") or math.inf,
        }
        return Cluster.star(**{**settings, **changes})

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for a JSON file, with its ``format_version``."""
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the JSON file, whole or not at all."""
        write_text_whole(Path(path), json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The calibration of `to_json`; refuses a newer format, missing entries, and what is not a finite number."""
        version = data.get("format_version")
        if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
            raise UserError(
                f"calibration has format {version}, this vsketchdlc reads up to {FORMAT_VERSION}; calibrate again"
            )
        values = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        try:
            values["entries"] = {name: Fitted(**entry) for name, entry in values["entries"].items()}
            calibration = cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"calibration is damaged ({error}); calibrate again") from None
        for name in INFO:
            if name not in calibration.entries:
                raise UserError(f"calibration has no value for '{name}'; calibrate again")
        for name, entry in calibration.entries.items():
            numbers = (entry.value, entry.low, entry.high)
            if not all(isinstance(n, int | float) and math.isfinite(n) and n > 0 for n in numbers):
                raise UserError(f"calibration: {name} is {entry.value}; it must be a finite number above 0")
        for name, (low, high) in _RANGES.items():
            number = getattr(calibration, name)
            if type(number) not in (int, float) or not low <= number <= high:
                raise UserError(f"calibration: {name} is {number}; it must lie between {low:g} and {high:g}")
        size = len(calibration.fitted_names)
        if np.shape(calibration.covariance) not in {(size, size), (0,)} or not np.all(
            np.isfinite(np.asarray(calibration.covariance, dtype=float))
        ):
            raise UserError("calibration: covariance is not a square of finite numbers; calibrate again")
        return calibration

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read the JSON file at `path`; raises UserError when it is missing or not one."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot read calibration {path}: {error}; make one with 'vsketchdlc calibrate'"
            ) from None
        if not isinstance(data, dict):
            raise UserError(f"{path} is not a calibration")
        return cls.from_json(data)
