"""What importers make: rows of a Trace, from values that may be anything at all.

A file that somebody else wrote can hold a text where a number belongs, times in the year 300000, lone surrogates.
The functions here give a usable value or None; what is None where it matters is dropped and counted.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..schema import EVENTS, SAMPLES, Kind
from ..trace import TensorInfo, TraceMeta

LARGEST_TIME_NS = 1 << 62
LARGEST_NUMBER = (1 << 31) - 1
LONGEST_TEXT = 4096


def time_ns(value: Any, unit_ns: int = 1000) -> int | None:
    """Nanoseconds behind `value` in units of `unit_ns`; None when it is no time that a trace can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        if not math.isfinite(value) or abs(value) > LARGEST_TIME_NS / unit_ns:
            return None
        return round(value * unit_ns)
    scaled = value * unit_ns
    return scaled if abs(scaled) <= LARGEST_TIME_NS else None


def whole(value: Any, largest: int = LARGEST_NUMBER) -> int | None:
    """`value` as a number from 0 to `largest`, also out of a text or a float without fraction; else None."""
    if isinstance(value, str) and len(value) <= 20 and value.strip().isdecimal():
        value = int(value.strip())  # strip() takes off more than int() does: control characters 28 to 31
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= largest else None


def text(value: Any) -> str | None:
    """`value` when it is a text, without what UTF-8 cannot hold, cut to `LONGEST_TEXT`; else None."""
    if not isinstance(value, str):
        return None
    return value[:LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")


_COLUMNS = (
    "step",
    "rank",
    "host",
    "process",
    "track",
    "kind",
    "tensor",
    "layer",
    "bucket",
    "bytes",
    "peer",
    "t_start_ns",
    "t_end_ns",
)
"""What importers fill; the other columns stay null."""


@dataclass
class EventRows:
    """Events and samples under construction; `dropped` counts what could not be used, by reason."""

    dropped: Counter[str] = field(default_factory=Counter)
    _events: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    _samples: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in SAMPLES.names})

    def add(
        self,
        kind: Kind,
        start_ns: int,
        end_ns: int,
        *,
        process: int,
        track: str,
        step: int | None = None,
        rank: int | None = None,
        host: str | None = None,
        tensor: str | None = None,
        layer: str | None = None,
        bucket: int | None = None,
        bytes_: int | None = None,
        peer: str | None = None,
    ) -> None:
        """Add one event; an end before its start becomes the start."""
        row = (
            step,
            rank,
            host,
            process,
            track,
            kind.value,
            tensor,
            layer,
            bucket,
            bytes_,
            peer,
            start_ns,
            max(start_ns, end_ns),
        )
        for column, value in zip(self._events.values(), row, strict=True):
            column.append(value)

    def sample(self, at_ns: int, process: int, subject: str, name: str, value: float) -> None:
        """Add one sample."""
        for column, item in zip(self._samples.values(), (at_ns, process, subject, name, value), strict=True):
            column.append(item)

    def __len__(self) -> int:
        return len(self._events["kind"])

    def events(self) -> pa.Table:
        """All events as a table of the Trace's schema."""
        count = len(self)
        columns = [
            pa.array(self._events[item.name], item.type)
            if item.name in self._events
            else pa.nulls(count, item.type)
            for item in EVENTS
        ]
        return pa.table(columns, schema=EVENTS)

    def samples(self) -> pa.Table | None:
        """All samples as a table of the Trace's schema, None when there are none."""
        return pa.table(self._samples, schema=SAMPLES) if self._samples["t_ns"] else None

    def dropped_notes(self) -> list[str]:
        """Sentences that tell what was dropped."""
        return [f"dropped {count:,} {reason}" for reason, count in sorted(self.dropped.items())]


@dataclass
class Imported:
    """One import: rows and what is known of the run."""

    rows: EventRows
    meta: TraceMeta


def tensor_infos(sizes: dict[str, int], dtypes: dict[str, str] | None = None) -> list[TensorInfo]:
    """Tensors by name with their bytes, in order of first appearance; parameters and layers are not known."""
    return [
        TensorInfo(name, None, None, size, (dtypes or {}).get(name, "unknown"), index)
        for index, (name, size) in enumerate(sizes.items())
    ]


def given_ranks(known: list[int | None], names: list[str]) -> tuple[list[int], list[str]]:
    """A rank for every file: the one that it says, or the next that no other says; and what was assumed."""
    taken = {rank for rank in known if rank is not None}
    free = (rank for rank in itertools.count() if rank not in taken)
    ranks, notes = [], []
    for rank, name in zip(known, names, strict=True):
        ranks.append(next(free) if rank is None else rank)
        if rank is None:
            notes.append(f"assumed: {name} is of rank {ranks[-1]}, because it does not say")
    return ranks, notes
