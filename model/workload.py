"""What one training step asks of a rank: gradients in the order they become ready, and compute times.

A `Workload` comes from a recorded `Trace`, from the catalogue of known networks, or from a JSON file. Its
times are those of a rank that has its cores to itself; whoever slows it down is the simulator's business.
A trace holds times under contention: `model.calibration` takes the contention out again.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class GradientTensor:
    """One gradient: Horovod's name, its layer, size in bytes, type, and when it is ready.

    ``ready_s`` counts from the start of the backward pass. ``index`` is its place in the sorted parameter
    list, which decides the optimizer's groups (reference 8.7); ``bit`` its place in Horovod's response cache,
    which decides the order of fusion (reference 1.5); None: the ready order.
    """

    name: str
    layer: str
    bytes: int
    dtype: str = "float32"
    ready_s: float = 0.0
    index: int = 0
    bit: int | None = None


@dataclass(frozen=True)
class StepSpread:
    """How much the parts of a step vary from step to step: coefficients of variation (sigma / mean).

    ``compute`` is shared by forward and backward of one step of one rank; ``communication`` is that of a
    bucket's allreduce; ``correlation`` is the share of the compute variance that hits all ranks at once.
    """

    compute: float = 0.02
    communication: float = 0.02
    correlation: float = 0.5


@dataclass(frozen=True)
class PushTimes:
    """When Python hands the allreduces to the engine, in the order of ``index``, in s.

    ``first_s`` counts from the start of the forward pass (below 0 where the script runs ahead), ``every_s`` is from one
    to the next, ``call_s`` the length of a call. They only show in timelines: the engine waits for the gradients.
    """

    first_s: float = 0.0
    every_s: float = 0.0
    call_s: float = 0.0


_CAST_S_PER_ELEMENT = 2.5e-9
"""MXNet 1.9's cast between fp32 and fp16 on a server core: 51 million took 0.13 s longer in a run of `validate`."""


@dataclass(frozen=True)
class Workload:
    """One training step of one rank.

    ``tensors`` are in ready order. ``forward_s``, ``backward_s``, ``update_s`` are compute times in seconds,
    ``overhead_s`` is what the loop spends between the last update and the next forward pass.
    ``update_group`` is the number of neighbouring parameters one optimizer operation updates.
    ``device`` is "cpu" where forward, backward and update run on the host's cores, else "gpu". ``cpu_share``
    is the CPU seconds a second of compute takes: the number of compute threads on a CPU, about 0.1 to 1 for
    the Python thread that feeds a GPU. ``blocking`` says that the loop waits for all updates
    before the next forward pass; otherwise the next forward of a layer waits only for its own weights.
    Times are those of the slowest of ``ranks_seen`` ranks.
    The backward pass may be ``unknown_s`` longer or shorter (90 %) where no data say exactly.
    ``bucket_turns`` are factors on ``stock_duplex`` for the large allreduces of a step, in turn, see `model.bucket_turns`.
    ``loader_cpu_s`` is the CPU work of a rank's ``loader_threads`` data loaders for one batch.
    """

    name: str
    tensors: tuple[GradientTensor, ...]
    forward_s: float
    backward_s: float
    update_s: float
    overhead_s: float = 0.0
    update_group: int = 4
    device: str = "cpu"
    cpu_share: float = 1.0
    blocking: bool = True
    loader_cpu_s: float = 0.0
    loader_threads: int = 1
    batch_per_rank: int = 1
    ranks_seen: int = 1
    spread: StepSpread = field(default_factory=StepSpread)
    push: PushTimes = field(default_factory=PushTimes)
    unknown_s: float = 0.0
    bucket_turns: tuple[float, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        if not self.tensors:
            raise UserError(
                f"workload '{self.name}' has no gradients: record at least two whole training steps"
            )
        for what in (
            "forward_s",
            "backward_s",
            "update_s",
            "overhead_s",
            "cpu_share",
            "loader_cpu_s",
            "unknown_s",
        ):
            value = getattr(self, what)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(
                    f"workload '{self.name}': {what} is {value}; it must be a time of 0 s or more"
                )
        previous = 0.0
        for tensor in self.tensors:
            if tensor.bytes <= 0:
                raise UserError(
                    f"workload '{self.name}': tensor {tensor.name} has {tensor.bytes} bytes; 1 or more needed"
                )
            if not previous <= tensor.ready_s < math.inf:
                raise UserError(f"workload '{self.name}': tensor {tensor.name} is out of ready order")
            previous = tensor.ready_s

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients of one step."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def fusion_order(self) -> dict[str, int]:
        """Place of each gradient in Horovod's response cache."""
        return {t.name: n if t.bit is None else t.bit for n, t in enumerate(self.tensors)}

    @property
    def compute_s(self) -> float:
        """Seconds of one step without any communication."""
        return self.forward_s + self.backward_s + self.update_s + self.overhead_s

    def scaled(
        self, *, batch_per_rank: int | None = None, speed: float = 1.0, dtype_bytes: int | None = None
    ) -> Workload:
        """The same network with another batch size, `speed` times faster cores, or smaller gradients.

        Forward, backward and ready times grow in proportion to the batch; the update does not.
        ``dtype_bytes=2`` sends gradients as fp16; on a CPU they are then cast after backward and before the update.
        Raises UserError for values that are not above 0.
        """
        batch = self.batch_per_rank if batch_per_rank is None else batch_per_rank
        if batch < 1 or not (math.isfinite(speed) and speed > 0):
            raise UserError(f"batch {batch} and core speed {speed} must be above 0")
        compute = batch / self.batch_per_rank / speed
        tensors = self.tensors
        if dtype_bytes is not None:
            tensors = tuple(
                dataclasses.replace(
                    t,
                    bytes=max(1, t.bytes * dtype_bytes // _dtype_bytes(t.dtype)),
                    dtype=f"float{8 * dtype_bytes}",
                )
                for t in tensors
            )
        cast_s = self._cast_s(dtype_bytes) / speed
        slower = dataclasses.replace(
            self,
            tensors=tuple(dataclasses.replace(t, ready_s=t.ready_s * compute) for t in tensors),
            forward_s=self.forward_s * compute,
            backward_s=self.backward_s * compute,
            update_s=self.update_s / speed + cast_s,
            overhead_s=self.overhead_s / speed,
            loader_cpu_s=self.loader_cpu_s * batch / self.batch_per_rank / speed,
            unknown_s=self.unknown_s * compute,
            batch_per_rank=batch,
        )
        if cast_s == 0 or slower.backward_s == 0:
            return slower
        return slower.with_backward(slower.backward_s + cast_s)

    def _cast_s(self, dtype_bytes: int | None) -> float:
        """Seconds of casting all gradients once, where the device is a CPU and the new type is another."""
        if dtype_bytes is None or self.device != "cpu":
            return 0.0
        cast = [t.bytes / _dtype_bytes(t.dtype) for t in self.tensors if _dtype_bytes(t.dtype) != dtype_bytes]
        return sum(cast) * _CAST_S_PER_ELEMENT

    def with_backward(self, backward_s: float) -> Workload:
        """The same with a backward pass of another length; all gradients move in proportion."""
        factor = backward_s / self.backward_s
        moved = tuple(dataclasses.replace(t, ready_s=t.ready_s * factor) for t in self.tensors)
        return dataclasses.replace(self, tensors=moved, backward_s=backward_s)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for a JSON file, with its ``format_version``."""
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """The workload of `to_json`; raises UserError for another format or damaged content."""
        if data.get("format_version") != FORMAT_VERSION:
            raise UserError(
                f"workload has format {data.get('format_version')}, this vsketchdlc reads {FORMAT_VERSION}"
            )
        values = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        try:
            values["tensors"] = tuple(GradientTensor(**tensor) for tensor in values["tensors"])
            values["spread"] = StepSpread(**values["spread"])
            values["push"] = PushTimes(**values.get("push", {}))
            values["bucket_turns"] = tuple(values.get("bucket_turns", ()))
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise UserError(f"workload is damaged ({error}); write it again") from None

    @classmethod
    def load(cls, path: str | Path) -> Workload:
        """Read the JSON file at `path`."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read workload {path}: {error}") from None
        if not isinstance(data, dict):
            raise UserError(f"{path} is not a workload file")
        return cls.from_json(data)


def _dtype_bytes(dtype: str) -> int:
    return {"float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1}.get(
        dtype, 4
    )


def backward_bulks(
    tensors: Sequence[GradientTensor], resolution_s: float = 20e-6
) -> list[tuple[float, list[GradientTensor]]]:
    """Gradients grouped by the operation that writes them: (ready offset in s, tensors), in ready order.

    MXNet runs up to 15 operations in one go; all their gradients become ready together (reference 5).
    """
    bulks: list[tuple[float, list[GradientTensor]]] = []
    for tensor in tensors:
        if bulks and tensor.ready_s - bulks[-1][1][-1].ready_s <= resolution_s:
            bulks[-1] = (tensor.ready_s, [*bulks[-1][1], tensor])
        else:
            bulks.append((tensor.ready_s, [tensor]))
    return bulks
