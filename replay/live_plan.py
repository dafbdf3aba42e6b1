"""What a live replay does in each step, small enough to travel in one environment variable.

No file system is shared between hosts, so the plan goes with the ranks' environment: JSON, compressed, base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, dataclass

PLAN_VARIABLE = "VSKETCHDLC_REPLAY_PLAN"
COMPUTE_KINDS = ("sleep", "spin", "mxnet")


@dataclass(frozen=True)
class ReplayTensor:
    """One gradient: Horovod's name, elements, type, and seconds from the start of backward until it is ready."""

    name: str
    elements: int
    dtype: str
    ready_s: float


@dataclass(frozen=True)
class LivePlan:
    """One step of every rank, and how often.

    ``tensors`` are in ready order. ``updates`` are groups of positions in ``tensors`` with the seconds that the
    optimizer takes for the group, in the order in which the groups can begin. ``compute`` is ``sleep`` (no CPU,
    as a GPU's host), ``spin`` (`threads` threads are busy) or ``mxnet`` (the engine's thread is). ``result`` is the file
    that rank 0 writes.
    """

    tensors: tuple[ReplayTensor, ...]
    updates: tuple[tuple[tuple[int, ...], float], ...]
    forward_s: float
    backward_s: float
    overhead_s: float
    steps: int
    compute: str
    result: str
    threads: int = 1

    def to_text(self) -> str:
        """As the ranks get it."""
        return base64.b64encode(zlib.compress(json.dumps(asdict(self)).encode())).decode()

    @classmethod
    def from_text(cls, text: str) -> LivePlan:
        """Read what `to_text` wrote."""
        data = json.loads(zlib.decompress(base64.b64decode(text)))
        data["tensors"] = tuple(ReplayTensor(**tensor) for tensor in data["tensors"])
        data["updates"] = tuple((tuple(group), seconds) for group, seconds in data["updates"])
        return cls(**data)
