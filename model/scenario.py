"""One question to the model: which workload, where, with which costs and knobs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

from ..errors import UserError
from .calibration import Calibration
from .cluster import Cluster
from .fusion import DEFAULT_THRESHOLD_BYTES
from .horovod import DEFAULT_CYCLE_S
from .lanes import DEFAULT_CHUNK_BYTES, DEFAULT_LANE_THRESHOLD_BYTES, MAX_AUX
from .parameters import Parameters
from .sites import Sites
from .workload import Workload

PART_OF_A_CORE = 0.75
TURNS_ON_PARTS_OF_A_CORE = 1.6
"""The least `stock_duplex` there: ranks begin further apart where compute and Horovod's thread wait for one core's turn.

Seen in the runs of `validate`: 1.5 to 1.7 on half cores, for calibrations on whole cores that had 1.2 to 1.5.
"""
WORTH_OF_PARTS_OF_A_CORE = 0.92
"""What CPU time is worth there beside whole cores: another host's job leaves its own data in the caches.

Seen on half cores: compute took 5 to 12 % more CPU seconds, the lanes 5 to 25 %.
"""


@dataclass(frozen=True)
class Scenario:
    """A `Workload` on a `Cluster` with the costs of a `Calibration` and the knobs of Horovod and of the lanes.

    ``aux`` is lanes per host, 0 for stock Horovod. Allreduces below ``lane_threshold_bytes`` stay on MPI.
    ``cached`` is False for a job's first step, when every gradient is negotiated.
    """

    workload: Workload
    cluster: Cluster
    calibration: Calibration = field(default_factory=Calibration.prior)
    aux: int = 0
    fusion_bytes: int = DEFAULT_THRESHOLD_BYTES
    cycle_s: float = DEFAULT_CYCLE_S
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    lane_threshold_bytes: int = DEFAULT_LANE_THRESHOLD_BYTES
    cached: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.aux <= MAX_AUX:
            raise UserError(f"aux is {self.aux}; it must lie between 0 and {MAX_AUX}")
        if not 0 <= self.fusion_bytes <= 2**40:
            raise UserError(f"fusion threshold is {self.fusion_bytes} bytes; it must lie between 0 and 1 TiB")
        if not (math.isfinite(self.cycle_s) and 0 <= self.cycle_s <= 10):
            raise UserError(f"cycle time is {self.cycle_s} s; it must lie between 0 and 10 s")
        if not 1024 <= self.chunk_bytes <= 2**30:
            raise UserError(f"chunk is {self.chunk_bytes} bytes; it must lie between 1 KiB and 1 GiB")

    @property
    def on_parts_of_a_core(self) -> bool:
        """Whether a host has less than a core, and less than the calibration had."""
        least = min(host.cores * host.speed for host in self.cluster.hosts)
        return bool(self.calibration.hosts) and least < PART_OF_A_CORE and self.calibration.cores > least

    @property
    def parameters(self) -> Parameters:
        """The calibration's costs; on parts of a core stock MPI takes turns more often."""
        costs = self.calibration.parameters
        if not self.on_parts_of_a_core or costs.stock_duplex >= TURNS_ON_PARTS_OF_A_CORE:
            return costs
        return costs.replaced(stock_duplex=TURNS_ON_PARTS_OF_A_CORE)

    @property
    def sites(self) -> Sites:
        """The cluster's resources; CPU time on parts of a core is worth less."""
        sites = Sites.of(self.cluster, self.parameters.wire_efficiency)
        if not self.on_parts_of_a_core:
            return sites
        return sites.with_parts_of_cores_worth(WORTH_OF_PARTS_OF_A_CORE, PART_OF_A_CORE)

    def with_lanes(self, aux: int) -> Scenario:
        """The same with `aux` lanes a host; from which size on another count is worth it was not recorded."""
        if aux == self.aux:
            return self
        return self.replaced(aux=aux, lane_threshold_bytes=DEFAULT_LANE_THRESHOLD_BYTES)

    def replaced(self, **values: object) -> Scenario:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **values)  # type: ignore[arg-type]
