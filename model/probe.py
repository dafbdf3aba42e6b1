"""What a lane probe measured: the time and CPU of allreduces of several sizes with several lane counts.

`vsketchdlc.fasthvd.probe` makes it on the user's own machines in a few seconds; `model.calibration` reads it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class ProbeRow:
    """Repeated allreduces of one size with one lane count, nothing else running.

    ``seconds`` are the durations seen by rank 0, one a repetition, warm-up left out; a repetition begins when
    all ranks are there. ``rank_cpu_s`` and ``lane_cpu_s`` are CPU seconds a repetition of one rank process
    and of all lanes of one host together (None where it was not measured).
    """

    aux: int
    bytes: int
    seconds: list[float]
    rank_cpu_s: float | None = None
    lane_cpu_s: float | None = None


@dataclass(frozen=True)
class LaneProbe:
    """All rows of one probe; ``settings`` holds the lanes' knobs it ran with (chunk_bytes ...)."""

    hosts: int
    ranks_per_host: int
    rows: list[ProbeRow]
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.ranks_per_host < 1:
            raise UserError(
                f"probe of {self.hosts} hosts with {self.ranks_per_host} ranks each: both must be 1 or more"
            )
        for row in self.rows:
            if row.aux < 0 or row.bytes <= 0 or not row.seconds:
                raise UserError(
                    f"probe row aux={row.aux} bytes={row.bytes} has no usable measurement; probe again"
                )
            if any(not (math.isfinite(value) and value > 0) for value in row.seconds):
                raise UserError(
                    f"probe row aux={row.aux} bytes={row.bytes} has a time that is not above 0; probe again"
                )

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for a JSON file, with its ``format_version``."""
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaneProbe:
        """The probe of `to_json`; raises UserError for a newer format or damaged content."""
        version = data.get("format_version")
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise UserError(
                f"lane probe has format {version}, this vsketchdlc reads up to {FORMAT_VERSION}; probe again"
            )
        try:
            rows = [ProbeRow(**row) for row in data["rows"]]
            return cls(int(data["hosts"]), int(data["ranks_per_host"]), rows, dict(data.get("settings", {})))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"lane probe is damaged ({error}); probe again") from None

    @classmethod
    def load(cls, path: str | Path) -> LaneProbe:
        """Read the JSON file at `path`."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot read lane probe {path}: {error}; make one with 'vsketchdlc tune'"
            ) from None
        if not isinstance(data, dict):
            raise UserError(f"{path} is not a lane probe")
        return cls.from_json(data)
