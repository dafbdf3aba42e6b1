"""Allreduces as fluid activities: what stock MPI and the lanes ask of cores and links, in order.

A `Leg` is latency first, then one activity. Stock MPI: exchange, then add, one after another on one thread.
Lanes: copy in, the ring as one activity with k threads and k flows, copy out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from . import openmpi
from .fluid import Activity
from .lanes import ring_cost, weighted_shares
from .maxmin import Demand, max_min_rates
from .parameters import Parameters
from .sites import Sites, cpu_of, merged, thread_bound

_SLICE_S = 3e-3
"""Linux's usual time slice: a thread that was waiting is not preempted before."""
_UNSHARED = 1e4
_ROUNDING = 1e-9
_LEAST_SHARE = 1e-6
_LANE_WAKES = 2
"""The rank's thread wakes when the ring is done and when the vote is: messages of one agreement follow one another within a turn."""
_LANE_MEMORY = 3.5
"""Bytes read or written a wire byte: out of and into socket buffers, and the addition in half of the rounds."""


@dataclass(frozen=True)
class RingShape:
    """How the lanes' ring of a leg divides: bytes that each lane sends in it, part of the time that sums locally."""

    lane_bytes: tuple[float, ...]
    local_part: float


@dataclass(frozen=True)
class Leg:
    """`latency_s` seconds in which nothing is used, then `activity`; `spins`: the rank's thread polls meanwhile.

    ``wakes`` counts how often the rank's thread must get a core to go on: each costs ``busy_wait_s`` where
    compute holds them all. ``ring`` is there where lanes do it.
    """

    latency_s: float
    activity: Activity | None
    spins: bool
    wakes: int = 0
    ring: RingShape | None = None


def stock_legs(sites: Sites, parameters: Parameters, nbytes: int, count: int) -> list[Leg]:
    """Open MPI's blocking allreduce of `nbytes` in `count` elements by Horovod's one thread a rank."""
    hosts = sites.host_count
    ranks_per_host = max(host.ranks for host in sites.hosts)
    algorithm = openmpi.algorithm_for(hosts, ranks_per_host, nbytes, count)
    if algorithm is openmpi.Algorithm.HAN:
        return _han_legs(sites, parameters, nbytes, ranks_per_host)
    return legs_of_stages(openmpi.stages(algorithm, hosts * ranks_per_host, nbytes), sites, parameters)


def legs_of_stages(stages: list[openmpi.Stage], sites: Sites, parameters: Parameters) -> list[Leg]:
    """Stages of an algorithm of stock MPI, one thread a rank, as legs."""
    hosts = sites.host_count
    latency = parameters.message_s + sites.cluster.worst_latency_s
    legs: list[Leg] = []
    for stage in _merged_stages(stages, sites):
        moved = stage.exchange_bytes + stage.one_way_bytes
        work = parameters.stock_s_per_byte * (1.0 if stage.exchange_bytes else 0.5)
        duplex = parameters.stock_duplex if stage.exchange_bytes else 1.0
        activity = Activity(
            "exchange",
            amount=moved,
            needs=merged([sites.cpu_needs(work), _times(sites.transfer_needs(stage.distance), duplex)]),
            bound=min(
                sites.flow_bytes_per_s / duplex if hosts > 1 else math.inf, thread_bound(work, sites.slowest)
            ),
            weight=_thread_weight(work),
        )
        legs.append(Leg(stage.rounds * latency, activity, spins=True, wakes=stage.rounds))
        if stage.reduce_bytes:
            amount = stage.reduce_bytes * parameters.stock_reduce_s_per_byte
            legs.append(Leg(0.0, rank_work("reduce", amount, sites, 3 * stage.reduce_bytes), spins=False))
    return legs


def _times(needs: dict[str, float], factor: float) -> dict[str, float]:
    """Needs `factor` times as large. Data of one direction of a connection queue behind the other's: their
    acknowledgements wait with them, and both directions take turns ("ACK compression", Zhang et al. 1991).
    """
    return {name: need * factor for name, need in needs.items()}


def _merged_stages(stages: list[openmpi.Stage], sites: Sites) -> list[openmpi.Stage]:
    """Stages in a row of the same shape as one: exact on a uniform cluster, where all distances cost the same."""
    if not sites.is_representative and sites.host_count > 2:
        return stages
    merged_stages: list[openmpi.Stage] = []
    for stage in stages:
        last = merged_stages[-1] if merged_stages else None
        if last and (last.exchange_bytes > 0, last.reduce_bytes > 0) == (
            stage.exchange_bytes > 0,
            stage.reduce_bytes > 0,
        ):
            merged_stages[-1] = openmpi.Stage(
                last.rounds + stage.rounds,
                last.exchange_bytes + stage.exchange_bytes,
                last.one_way_bytes + stage.one_way_bytes,
                last.reduce_bytes + stage.reduce_bytes,
                last.distance,
            )
        else:
            merged_stages.append(stage)
    return merged_stages


def _han_legs(sites: Sites, parameters: Parameters, nbytes: int, ranks_per_host: int) -> list[Leg]:
    """HAN: 64 KiB segments through reduce on the host, reduce and broadcast over the leaders, broadcast back.

    The period of the pipeline is its slowest stage; over the leaders both are binomial trees, so the root
    sends and receives every segment ceil(log2 H) times.
    """
    depth = math.ceil(math.log2(sites.host_count))
    leader = depth * parameters.stock_s_per_byte + parameters.stock_reduce_s_per_byte * (depth + 1)
    others = (ranks_per_host - 1) * (parameters.stock_reduce_s_per_byte + parameters.fuse_in_s_per_byte)
    wire = _times(sites.transfer_needs(), depth * parameters.stock_duplex)
    cpu = {name: need / ranks_per_host for name, need in sites.cpu_needs(leader + others).items()}
    activity = Activity(
        "han",
        amount=float(nbytes),
        needs=merged([cpu, wire]),
        bound=min(sites.flow_bytes_per_s / parameters.stock_duplex, thread_bound(leader, sites.slowest)),
        weight=_thread_weight(leader),
    )
    return [Leg(2 * depth * (parameters.message_s + sites.cluster.worst_latency_s), activity, spins=True)]


def lane_legs(
    sites: Sites, parameters: Parameters, nbytes: int, lanes: int, *, weighted: bool = True
) -> list[Leg]:
    """Fast Horovod's allreduce of `nbytes` through `lanes` lanes a host; the rank's thread sleeps.

    `weighted` says that the lanes have learned the rates of uneven flows.
    """
    hosts = sites.host_count
    ranks_per_host = max(host.ranks for host in sites.hosts)
    cores = min(host.cores for host in sites.hosts)
    latency_s = sites.cluster.worst_latency_s
    cost = ring_cost(nbytes, lanes, hosts, ranks_per_host, cores, parameters, latency_s)
    copy = rank_work("lane_copy", cost.copy_cpu_s, sites, 2 * nbytes)
    legs = [Leg(0.0, copy, spins=False)]
    rates = [sites.lane_bytes_per_s(lane) for lane in range(lanes)]
    shares = weighted_shares(rates) if weighted else [1 / lanes] * lanes
    if hosts > 1:
        per_byte = cost.cpu_s / cost.wire_bytes
        cpu = {name: need / ranks_per_host for name, need in sites.cpu_needs(per_byte).items()}
        ring = Activity(
            "lane_ring",
            amount=cost.wire_bytes,
            needs=merged([cpu, sites.transfer_needs(), sites.memory_needs(_LANE_MEMORY / ranks_per_host)]),
            bound=min(
                min(rate / share for rate, share in zip(rates, shares, strict=True)),
                thread_bound(per_byte, sites.slowest, lanes),
            ),
            weight=_thread_weight(per_byte, lanes),
        )
    else:
        ring = rank_work("lane_ring", cost.cpu_s / lanes, sites)
    local_part = cost.local_cpu_s / cost.cpu_s if cost.cpu_s > 0 else 0.0
    shape = RingShape(tuple(share * cost.wire_bytes for share in shares), local_part)
    return [
        *legs,
        Leg(cost.latency_s, ring, spins=False, ring=shape),
        Leg(0.0, copy, spins=False, wakes=_LANE_WAKES),
    ]


def rank_work(name: str, core_s: float, sites: Sites, memory_bytes: float = 0.0) -> Activity:
    """`core_s` core seconds of Horovod's thread of every rank, in which it reads and writes `memory_bytes`."""
    needs = sites.cpu_needs(1.0)
    if memory_bytes > 0 and core_s > 0:
        needs = merged([needs, sites.memory_needs(memory_bytes / core_s)])
    return Activity(name, amount=core_s, needs=needs, bound=sites.slowest)


def fusion_copy(name: str, core_s: float, sites: Sites, memory_bytes: float) -> list[Activity]:
    """A copy into or out of the fusion buffer: a time slice of it after a wait without sharing its core, then the rest."""
    if core_s <= 0:
        return []
    alone_s = min(core_s, _SLICE_S)
    memory_per_s = memory_bytes / core_s
    parts = [replace(rank_work(name, alone_s, sites, memory_per_s * alone_s), weight=_UNSHARED)]
    if core_s > alone_s:
        parts.append(rank_work(name, core_s - alone_s, sites, memory_per_s * (core_s - alone_s)))
    return parts


def _thread_weight(core_s_per_unit: float, threads: int = 1) -> float:
    """Weight that makes fair shares equal in core seconds a thread: what a fair scheduler gives."""
    return threads / core_s_per_unit if core_s_per_unit > 0 else 1.0


@dataclass
class _Compute:
    """What one compute thread a rank still does: `backward_s` seconds as recorded, then `update_s` core seconds."""

    backward_s: float
    update_s: float

    @property
    def runs(self) -> bool:
        return self.backward_s > 0 or self.update_s > 0

    def lasts_s(self, share: float) -> float:
        """Seconds until it is done with `share` of a core."""
        return self.backward_s + self.update_s / share

    def goes_on(self, seconds: float, share: float) -> None:
        """`seconds` with `share` of a core pass."""
        updating_s = max(0.0, seconds - self.backward_s)
        self.backward_s = max(0.0, self.backward_s - seconds)
        self.update_s = max(0.0, self.update_s - share * updating_s)


def alone_s(
    legs: list[Leg], sites: Sites, parameters: Parameters, busy_s: float = 0.0, update_s: float = 0.0
) -> float:
    """Seconds the legs take when one compute thread a rank runs beside them: first for `busy_s` seconds of the backward
    pass, then for weight updates that take `update_s` where nothing else runs.

    The closed form of what the simulator finds when nothing else starts or ends in between.
    """
    total = 0.0
    compute = _Compute(busy_s, update_s * min(1.0, *(host.cores / host.ranks for host in sites.hosts)))
    for leg in legs:
        waits = leg.wakes * sites.turns_before(1.0) if compute.runs else 0.0
        latency_s = leg.latency_s + waits * parameters.busy_wait_s
        compute.goes_on(latency_s, 1.0)
        total += latency_s
        if leg.activity is None or leg.activity.amount <= 0:
            continue
        left = leg.activity.amount
        if compute.runs:
            rate, share = _rates_beside_compute(leg, leg.activity, sites, parameters)
            span_s = min(left / rate, compute.lasts_s(share))
            compute.goes_on(span_s, share)
            total += span_s
            left = max(0.0, left - rate * span_s)
        if left > _ROUNDING * leg.activity.amount:
            total += left / max_min_rates(_demands(leg, leg.activity, sites, parameters), sites.capacity)[0]
    return total


def _rates_beside_compute(
    leg: Leg, activity: Activity, sites: Sites, parameters: Parameters
) -> tuple[float, float]:
    """Rate of `activity`, and the share of a core that compute gets where it gets least."""
    compute = [Demand({cpu_of(host.name): float(host.ranks)}, 1.0) for host in sites.hosts]
    rates = max_min_rates([*_demands(leg, activity, sites, parameters), *compute], sites.capacity)
    return rates[0], max(min(rates[-len(compute) :]), _LEAST_SHARE)


def _demands(leg: Leg, activity: Activity, sites: Sites, parameters: Parameters) -> list[Demand]:
    """The activity, and the polling of the ranks' threads."""
    demands = [Demand(activity.needs, activity.bound, activity.weight)]
    if leg.spins:
        demands += [
            Demand({cpu_of(host.name): float(host.ranks)}, 1.0, parameters.spin_weight)
            for host in sites.hosts
        ]
    return demands
