"""Names of operations and tensors, from what the start-up hook wrote beside the logs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..raw import RawProcess
from ..trace import TensorInfo

_PART_OF_LAYER = re.compile(
    r"[._](weight|bias|gamma|beta|alpha|running_mean|running_var|[ihro]2[ihro]_(?:weight|bias))$"
)


def layer_of(parameter: str) -> str:
    """Layer that `parameter` belongs to: its name without the last word where that names a part of a layer."""
    return _PART_OF_LAYER.sub("", parameter)


@dataclass(frozen=True)
class Operation:
    """One engine operation of Horovod: what it does and the tensors it carries (several for a group)."""

    kind: str
    tensors: tuple[TensorInfo, ...]


@dataclass
class Names:
    """Everything one process's hook told about names."""

    operations: dict[int, Operation] = field(default_factory=dict)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    aggregation: int = 0
    batch_size: int | None = None
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def gradients(self) -> list[TensorInfo]:
        """The allreduced tensors, each once, in the order they were first seen."""
        seen: dict[str, TensorInfo] = {}
        for operation in self.operations.values():
            if operation.kind == "allreduce":
                for tensor in operation.tensors:
                    seen.setdefault(tensor.name, tensor)
        return list(seen.values())


def names_of(process: RawProcess) -> Names:
    """What the hook of `process` wrote, with Horovod's own names for the tensors (reference 4)."""
    names = Names()
    for entry in process.entries:
        if "parameters" in entry:
            names.parameters = entry["parameters"]
            names.aggregation = int(entry.get("aggregation", 0) or 0)
            names.batch_size = entry.get("batch_size")
        elif "operation" in entry:
            names.operations[int(entry["number"])] = _operation(entry, names)
        names.settings.update(entry.get("settings", {}))
    return names


def _operation(entry: dict[str, Any], names: Names) -> Operation:
    kind, base, parts = entry["operation"], entry["name"], entry["tensors"]
    shown = f"horovod_{kind}.{'noname' if base is None else base}"
    tensors = []
    for place, part in enumerate(parts):
        name = shown if len(parts) == 1 else f"{shown}_{place + 1}of{len(parts)}"
        parameter = part["parameter"] or _parameter_by_name(kind, base, len(parts), names)
        index = part["index"] if part["index"] is not None else _index_of(parameter, names)
        tensors.append(
            TensorInfo(
                name=name,
                parameter=parameter,
                layer=None if parameter is None else layer_of(parameter),
                bytes=int(part["bytes"]),
                dtype=part["dtype"],
                index=-1 if index is None else index,
            )
        )
    return Operation(kind, tuple(tensors))


def _parameter_by_name(kind: str, base: str | None, count: int, names: Names) -> str | None:
    """The parameter behind a tensor whose array is not the gradient itself (a compressed copy, a broadcast)."""
    if base is None or count > 1:
        return None
    if kind == "broadcast":
        return base
    digits = re.search(r"(\d+)$", base)
    if kind == "allreduce" and digits:
        for parameter in names.parameters:
            if parameter["index"] == int(digits.group(1)):
                return str(parameter["name"])
    return None


def _index_of(parameter: str | None, names: Names) -> int | None:
    for known in names.parameters:
        if known["name"] == parameter:
            return int(known["index"])
    return None
