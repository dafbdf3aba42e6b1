"""Horovod's background loop: when a gradient that is ready is seen, and what agreeing on it costs.

Reference 1.4, 1.5 and 8.3. A cycle starts every ``cycle_s`` unless the work of the one before takes longer.
Idle cycles change nothing, so they are skipped by arithmetic and not simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .openmpi import control_rounds
from .parameters import Parameters

DEFAULT_CYCLE_S = 1e-3
"""Horovod's HOROVOD_CYCLE_TIME when it is not set."""


@dataclass
class CycleClock:
    """Starts of the cycles of all ranks' background threads (one clock: each cycle is a barrier over ranks).

    ``earliest_s`` is the start of the next cycle, `period_s` the distance of idle cycles.
    """

    cycle_s: float
    slack_s: float
    control_s: float
    earliest_s: float = 0.0

    @property
    def period_s(self) -> float:
        """Start to start of idle cycles: the sleep, or the control message where that takes longer."""
        return (
            max(self.cycle_s + self.slack_s, self.control_s)
            if self.cycle_s > 0
            else max(self.control_s, 1e-6)
        )

    def start_for(self, queued_s: float) -> float:
        """Start of the first cycle that pops what was queued at `queued_s`."""
        if queued_s <= self.earliest_s:
            return self.earliest_s
        idle = math.ceil((queued_s - self.earliest_s) / self.period_s - 1e-9)
        return self.earliest_s + idle * self.period_s

    def ended(self, start_s: float, end_s: float) -> None:
        """A cycle that began at `start_s` finished its work at `end_s`."""
        asleep = start_s + self.cycle_s + self.slack_s
        self.earliest_s = asleep if self.cycle_s > 0 and end_s < start_s + self.cycle_s else end_s


def control_s(parameters: Parameters, ranks: int, latency_s: float) -> float:
    """The bit vector's allreduce of one cycle, in seconds [tau_and]."""
    return control_rounds(ranks) * (parameters.control_round_s + latency_s)


def negotiation_s(parameters: Parameters, ranks: int, tensors: int, latency_s: float) -> float:
    """Gather, Gatherv, Bcast, Bcast of a cycle in which some gradient is not cached yet [tau_neg].

    About 150 bytes a request; the coordinator's work grows with ranks and requests.
    """
    if ranks == 1:
        return 0.0
    depth = math.ceil(math.log2(ranks))
    return 4 * depth * (parameters.control_round_s + latency_s) + ranks * tensors * 2e-6
