"""Horovod's own two numeric knobs, set alike in every rank under the names that `horovodrun` gives them.

Ranks with different fusion thresholds fuse different gradients and break the training: `mpirun` hands a variable of the
shell to the ranks of this host only, unless it is told to (-x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import UserError


@dataclass(frozen=True)
class HorovodSettings:
    """Fusion threshold in MiB and cycle time in ms; None: as the ranks have it. Raises UserError for what cannot work."""

    fusion_threshold_mb: float | None = None
    cycle_time_ms: float | None = None

    def __post_init__(self) -> None:
        threshold, cycle = self.fusion_threshold_mb, self.cycle_time_ms
        if threshold is not None and not (math.isfinite(threshold) and 0 <= threshold <= 2**20):
            raise UserError(
                f"--fusion-threshold-mb {threshold:g} is not possible: choose 0 (no fusion) to 1048576"
            )
        if cycle is not None and not (math.isfinite(cycle) and 0 <= cycle <= 10_000):
            raise UserError(f"--cycle-time-ms {cycle:g} is not possible: choose 0 to 10000")

    def variables(self) -> dict[str, str]:
        """Horovod's variables that say the same."""
        found = {}
        if self.fusion_threshold_mb is not None:
            found["HOROVOD_FUSION_THRESHOLD"] = str(round(self.fusion_threshold_mb * 2**20))
        if self.cycle_time_ms is not None:
            found["HOROVOD_CYCLE_TIME"] = f"{self.cycle_time_ms:g}"
        return found
