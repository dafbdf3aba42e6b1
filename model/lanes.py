"""What one allreduce through the auxiliary lanes costs: the stages of Fast Horovod's data path.

Each lane of a host owns a slice of every segment; the lanes of one number form a TCP ring over the hosts and
work in chunks, receiving, adding and sending at the same time. So the whole ring is one fluid activity (it
advances at the pace of its scarcest resource) plus latency terms: filling the pipeline costs a round per hop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .parameters import Parameters

MAX_AUX = 64
DEFAULT_CHUNK_BYTES = 256 * 1024
DEFAULT_LANE_THRESHOLD_BYTES = 256 * 1024
"""Smaller allreduces stay on MPI: they are latency, not bandwidth."""
LEAST_MEASURED_BYTES = 4 << 20
_MOST_CROWDED = 16.0
_WORTH = 0.92
_LEAST_SHARE = 1 / 256


@dataclass(frozen=True)
class RingCost:
    """One lane allreduce of b bytes on each of H hosts with k lanes.

    ``wire_bytes`` are sent and received by each host in all; ``cpu_s`` is the lanes' CPU work on each host;
    ``flows`` share the wire bytes equally. ``copy_cpu_s`` is spent on each host by each rank before and again
    after the ring. ``latency_s`` does not depend on the bytes; ``vote_rounds`` messages end it. ``local_cpu_s`` of
    ``cpu_s`` sums over the ranks of the host.
    """

    wire_bytes: float
    flows: int
    cpu_s: float
    copy_cpu_s: float
    latency_s: float
    vote_rounds: int
    local_cpu_s: float = 0.0


def weighted_shares(rates: Sequence[float]) -> list[float]:
    """Share of the bytes of each lane whose flow alone reaches ``rates[lane]``, as the lanes settle on.

    fasthvd/native/rank/weights.c: shares in proportion to the rates, but equal ones where those promise less than 8 %,
    and never less than 1/256, so that a lane is measured again.
    """
    count = len(rates)
    if count < 2 or min(rates) >= _WORTH * sum(rates) / count or not all(map(math.isfinite, rates)):
        return [1 / count] * count
    shares = [max(rate / sum(rates), _LEAST_SHARE) for rate in rates]
    return [share / sum(shares) for share in shares]


def weights_are_learned(gradient_bytes: int, largest_bytes: int, fusion_bytes: int) -> bool:
    """Do allreduces get large enough (4 MiB) for the lanes to measure one another?"""
    return max(largest_bytes, min(gradient_bytes, fusion_bytes)) >= LEAST_MEASURED_BYTES


def crowded_lane_s_per_byte(parameters: Parameters, lanes: int, cores: float) -> float:
    """CPU seconds a wire byte costs one of `lanes` lanes on a host of `cores`.

    Lanes that share a core wake more often for smaller pieces, and find colder caches.
    """
    # Part of a core is a whole one part of the time: four lanes on half a core crowd it as four.
    on_a_core = min(_MOST_CROWDED, max(1.0, lanes / max(cores, 1.0)))
    return parameters.lane_s_per_byte * (1.0 + (parameters.lane_crowd - 1.0) * (on_a_core - 1.0) / 3)


def ring_cost(
    nbytes: int,
    lanes: int,
    hosts: int,
    ranks_per_host: int,
    cores: float,
    parameters: Parameters,
    latency_s: float,
) -> RingCost:
    """Cost of one allreduce of `nbytes` through `lanes` per host of `cores`; `latency_s` is the wire's, one way."""
    wire = 2.0 * (hosts - 1) / hosts * nbytes
    # The lanes also sum over the host's ranks in shared memory: about the work of a copy per added rank.
    local = (ranks_per_host - 1) * nbytes * parameters.copy_s_per_byte
    rounds = 2 * (hosts - 1)
    vote = math.ceil(math.log2(hosts)) * 2 if hosts > 1 else 0
    return RingCost(
        wire_bytes=wire,
        flows=lanes,
        cpu_s=wire * crowded_lane_s_per_byte(parameters, lanes, cores) + local,
        copy_cpu_s=nbytes * parameters.copy_s_per_byte,
        latency_s=parameters.lane_call_s
        + lanes * parameters.lane_start_s
        + rounds * (parameters.lane_round_s + latency_s)
        + vote * latency_s,
        vote_rounds=vote,
        local_cpu_s=local,
    )
