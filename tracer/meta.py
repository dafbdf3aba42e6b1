"""What a trace says about its run besides events: ``meta.json``, checked on reading field by field."""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from .schema import FORMAT_VERSION

_T = TypeVar("_T")


@dataclass(frozen=True)
class TensorInfo:
    """One gradient as the job knows it: Horovod's name, the parameter and layer behind it, its size."""

    name: str
    parameter: str | None
    layer: str | None
    bytes: int
    dtype: str
    index: int


@dataclass
class HostInfo:
    """One machine: what it is called, its cores usable by the job, its clock against the reference host.

    ``clock_offset_ns`` is added to the host's stamps to get reference time; None where it is unknown.
    ``clock_uncertainty_ns`` is the half-width of the interval that holds the true offset.
    A clock that runs fast or slow has a ``clock_drift`` (ns a ns): reference time is
    ``t + clock_offset_ns + clock_drift * (t - clock_middle_ns)``.
    Hosts with the same ``machine`` (the kernel's boot identity) are containers of one machine and share its cores.
    """

    name: str
    cores: int | None = None
    ranks: list[int] = field(default_factory=list)
    clock_offset_ns: int | None = 0
    clock_uncertainty_ns: int | None = None
    clock_drift: float = 0.0
    clock_middle_ns: int = 0
    machine: str | None = None


@dataclass
class TraceMeta:
    """What a trace says about its run besides events.

    ``source`` is ``recorded``, ``simulated`` or ``imported:<format>``; ``settings`` holds Horovod's and the
    lanes' knobs as the ranks saw them (``aux``, ``fusion_threshold_bytes``, ``cycle_time_s``, ``mpi``...);
    ``flows`` tells the library that owns each TCP flow, by its name;
    ``missing_ranks`` are ranks that were announced but left no readable log; ``lost_events`` counts events
    dropped at the size limit; ``notes`` are sentences for the user (repairs, assumptions, lab limits).
    """

    source: str = "recorded"
    command: list[str] = field(default_factory=list)
    hosts: list[HostInfo] = field(default_factory=list)
    ranks: int = 0
    batch_per_rank: int | None = None
    tensors: list[TensorInfo] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    flows: dict[str, str] = field(default_factory=dict)
    lost_events: int = 0
    missing_ranks: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    format_version: int = FORMAT_VERSION


def read_meta(folder: Path) -> TraceMeta:
    """The meta of the trace in `folder`.

    Raises UserError when it is missing, damaged, or of a newer format. Fields that are not known are ignored: the
    same format may have gained some.
    """
    file = folder / "meta.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder} is not a readable trace ({file.name}: {error}); record it again") from None
    version = data.get("format_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise UserError(f"{folder}/meta.json has no format_version; it is not a trace of vsketchdlc")
    if version > FORMAT_VERSION:
        raise UserError(
            f"{folder} has trace format {version}, this vsketchdlc reads up to {FORMAT_VERSION}; install a newer one"
        )
    try:
        return _as(TraceMeta, data, "")
    except _Damaged as damage:
        raise UserError(f"{folder}/meta.json is damaged ({damage}); record the trace again") from None


class _Damaged(Exception):
    """A value of the wrong type; the message says where."""


def _as(kind: type[_T], value: Any, where: str) -> _T:
    """`value` from JSON as the dataclass `kind`, with every field's type checked."""
    if not isinstance(value, dict):
        raise _Damaged(f"{where or 'the file'} is no object")
    hints = typing.get_type_hints(kind)
    known = {}
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name in value:
            known[one.name] = _checked(hints[one.name], value[one.name], f"{where}{one.name}")
    try:
        return kind(**known)
    except TypeError as error:
        raise _Damaged(f"{where}{str(error).split(')')[-1].strip()}") from None


def _checked(hint: Any, value: Any, where: str) -> Any:
    """`value` when it is of the type `hint`; numbers must be finite and fit 64 bits."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is types.UnionType:
        rest = next(kind for kind in arguments if kind is not type(None))
        return None if value is None else _checked(rest, value, where)
    if origin is list:
        if not isinstance(value, list):
            raise _Damaged(f"{where} is no list")
        return [_checked(arguments[0], item, f"{where}[{place}].") for place, item in enumerate(value)]
    if is_dataclass(hint):
        return _as(typing.cast(type[Any], hint), value, where)
    accepted: Any = (int, float) if hint is float else origin or hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise _Damaged(f"{where.rstrip('.')} is no {getattr(origin or hint, '__name__', hint)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Damaged(f"{where} is not finite")
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise _Damaged(f"{where} is too large")
    return value
