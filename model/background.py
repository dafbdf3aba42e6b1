"""Horovod's background threads of all ranks as one process: see what is ready, agree, fuse, reduce, call back.

They act as one because each of their cycles is a barrier over all ranks (reference 1.5).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from ..tracer.schema import Kind
from . import bucket_turns
from .collectives import Leg, RingShape, fusion_copy, lane_legs, stock_legs
from .fluid import Activity, Running
from .fusion import fuse, rounded_threshold
from .horovod import CycleClock, control_s, negotiation_s
from .lanes import weights_are_learned
from .parameters import Parameters
from .sites import cpu_of
from .workload import GradientTensor
from .world import World

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class BucketRun:
    """One fused bucket: when its last gradient was ready, when Horovod took it up, when it was done."""

    tensors: tuple[GradientTensor, ...]
    ready_s: float
    start_s: float
    allreduce_start_s: float
    allreduce_end_s: float
    end_s: float

    @property
    def bytes(self) -> int:
        """Bytes of the bucket."""
        return sum(tensor.bytes for tensor in self.tensors)


class Background:
    """The process; `done` is called with each tensor when its bucket is complete, in the bucket's order.

    ``noise`` are factors on the allreduces of a step, in turn; those numbered in ``free`` cost nothing. ``buckets`` are those of all steps, ``ready_s`` is
    when each gradient was last ready.
    """

    def __init__(
        self,
        world: World,
        done: Callable[[GradientTensor], None],
        noise: Sequence[float],
        free: frozenset[int] = frozenset(),
    ) -> None:
        self.world = world
        self.env = world.env
        self.done = done
        self.noise = noise
        self.free = free
        self.order = world.workload.fusion_order
        largest = max(tensor.bytes for tensor in world.workload.tensors)
        self.weighted = weights_are_learned(
            world.workload.gradient_bytes, largest, world.scenario.fusion_bytes
        )
        self.queued: dict[str, GradientTensor] = {}
        self.hosts_ready: dict[str, int] = {}
        self.ready_s: dict[str, float] = {}
        self.queued_s: dict[tuple[str, str], float] = {}
        self.buckets: list[BucketRun] = []
        self.wake = self.env.event()
        self._number = self._reduced = self._exchanged = 0

    def enqueue(self, host: str, tensors: Sequence[GradientTensor], ready_s: float) -> None:
        """One host queues gradients; what all hosts have queued can be reduced."""
        for tensor in tensors:
            self.ready_s[tensor.name] = ready_s
            self.queued_s[host, tensor.name] = self.env.now
            self.hosts_ready[tensor.name] = self.hosts_ready.get(tensor.name, 0) + 1
            if self.hosts_ready[tensor.name] == len(self.world.sites.hosts):
                self.hosts_ready[tensor.name] = 0
                self.queued[tensor.name] = tensor
        if self.queued and not self.wake.triggered:
            self.wake.succeed()

    def run(self) -> Process:
        """Cycle for cycle, idle ones skipped."""
        world, scenario = self.world, self.world.scenario
        ranks, latency = scenario.cluster.ranks, scenario.cluster.worst_latency_s
        agree_s = control_s(world.costs, ranks, latency)
        clock = CycleClock(scenario.cycle_s, world.costs.cycle_slack_s, agree_s)
        threshold = rounded_threshold(scenario.fusion_bytes, max(host.ranks for host in world.sites.hosts))
        while True:
            yield self.wake
            clock.control_s = agree_s + world.waking_s(1)
            start_s = clock.start_for(self.env.now)
            yield self.env.timeout(max(0.0, start_s - self.env.now))
            batch = sorted(self.queued.values(), key=lambda tensor: self.order[tensor.name])
            self.queued.clear()
            self.wake = self.env.event()
            extra = 0.0 if scenario.cached else negotiation_s(world.costs, ranks, len(batch), latency)
            yield self.env.timeout(world.waking_s(1))
            # As the last rank to arrive sees it: the others wait for it inside the call.
            control_start_s = self.env.now
            yield self.env.timeout(agree_s + extra)
            world.mark_all(Kind.NEGOTIATE, control_start_s)
            buckets = fuse(batch, threshold)
            self._mark_agreed(buckets)
            for bucket in buckets:
                yield from self._perform(bucket)
            clock.ended(start_s, self.env.now)

    def _mark_agreed(self, buckets: Sequence[Sequence[GradientTensor]]) -> None:
        """Each gradient was negotiated from when its host queued it until now."""
        for number, bucket in enumerate(buckets, start=self._number):
            for tensor in bucket:
                about: dict[str, Any] = {"tensor": tensor.name, "bucket": number, "bytes": tensor.bytes}
                for host in self.world.sites.hosts:
                    queued_s = self.queued_s[host.name, tensor.name]
                    self.world.mark(Kind.NEGOTIATE, host.name, queued_s, **about)

    def _perform(self, bucket: Sequence[GradientTensor]) -> Process:
        """Copy in, reduce over all ranks, copy out, tell the engine."""
        world, costs = self.world, self.world.costs
        number, start_s = self._number, self.env.now
        self._number += 1
        free = number in self.free
        nbytes = sum(tensor.bytes for tensor in bucket)
        about = {"bucket": number, "bytes": nbytes}
        yield self.env.timeout(costs.bucket_s)
        if len(bucket) > 1 and not free:
            copy_start_s = self.env.now
            yield from self._copy(Kind.FUSE_IN, nbytes, nbytes * costs.fuse_in_s_per_byte)
            world.mark_all(Kind.FUSE_IN, copy_start_s, **about)
        allreduce_s = self.env.now
        noise = self.noise[number] if number < len(self.noise) else 1.0
        for leg in [] if free else self._legs(nbytes, bucket):
            yield from self._run_leg(leg, noise, number)
        reduced_s = self.env.now
        world.mark_all(Kind.ALLREDUCE, allreduce_s, **about)
        if len(bucket) > 1 and not free:
            yield from self._copy(Kind.FUSE_OUT, nbytes, nbytes * costs.fuse_out_s_per_byte)
            world.mark_all(Kind.FUSE_OUT, reduced_s, **about)
        ready_s = max(self.ready_s[tensor.name] for tensor in bucket)
        end_s = self.env.now + costs.tensor_s * len(bucket)
        self.buckets.append(BucketRun(tuple(bucket), ready_s, start_s, allreduce_s, reduced_s, end_s))
        self._reduced += len(bucket)
        if self._reduced == len(world.workload.tensors):
            self._number = self._reduced = self._exchanged = 0
        for tensor in bucket:
            yield self.env.timeout(costs.tensor_s)
            self.done(tensor)
            world.mark_all(
                Kind.DONE,
                reduced_s,
                tensor=tensor.name,
                layer=tensor.layer,
                bucket=number,
                bytes=tensor.bytes,
            )

    def _copy(self, kind: Kind, nbytes: int, core_s: float) -> Process:
        """Copy a bucket into or out of the fusion buffer."""
        for part in fusion_copy(kind.value, core_s, self.world.sites, 2 * nbytes):
            yield self.world.fluid.start(part)

    def _legs(self, nbytes: int, bucket: Sequence[GradientTensor]) -> list[Leg]:
        world, scenario = self.world, self.world.scenario
        if scenario.aux and nbytes >= scenario.lane_threshold_bytes:
            return lane_legs(world.sites, world.costs, nbytes, scenario.aux, weighted=self.weighted)
        element = 8 if bucket[0].dtype.endswith("64") else 2 if bucket[0].dtype == "float16" else 4
        return stock_legs(world.sites, self._with_turns(nbytes), nbytes, max(1, nbytes // element))

    def _with_turns(self, nbytes: int) -> Parameters:
        """The costs with which stock MPI exchanges this bucket: each of a step's large ones takes its own share of turns."""
        costs, known = self.world.costs, self.world.workload.bucket_turns
        if nbytes < bucket_turns.LEAST_BYTES:
            return costs
        place = self._exchanged
        self._exchanged += 1
        factor = known[place] if place < len(known) else 1.0
        return costs.replaced(stock_duplex=max(bucket_turns.LEAST, costs.stock_duplex * factor))

    def _run_leg(self, leg: Leg, noise: float, bucket: int) -> Process:
        world, begin_s = self.world, self.env.now
        spinning: list[Running] = []
        if leg.spins:
            for host in world.sites.hosts:
                needs = {cpu_of(host.name): float(host.ranks)}
                spin = Activity("spin", float("inf"), needs, 1.0, world.costs.spin_weight)
                spinning.append(world.fluid.start(spin))
        latency_s = leg.latency_s + world.waking_s(leg.wakes)
        if latency_s > 0:
            yield self.env.timeout(latency_s * noise)
        if leg.activity is not None:
            yield world.fluid.start(leg.activity if noise == 1.0 else leg.activity.slowed(noise))
        for running in spinning:
            world.fluid.cancel(running)
        if leg.ring is not None:
            self._mark_lanes(leg.ring, begin_s, bucket)

    def _mark_lanes(self, ring: RingShape, begin_s: float, bucket: int) -> None:
        """What each lane did since `begin_s`: sum over the host's ranks, then both halves of the ring."""
        now_s = self.env.now
        summed_s = begin_s + ring.local_part * (now_s - begin_s)
        for lane, nbytes in enumerate(ring.lane_bytes):
            half = {"bucket": bucket, "bytes": round(nbytes / 2), "lane": lane}
            if ring.local_part:
                self.world.mark_all(Kind.LANE_LOCAL_SUM, begin_s, summed_s, bucket=bucket, lane=lane)
            if nbytes:
                middle_s = (summed_s + now_s) / 2
                self.world.mark_all(Kind.LANE_REDUCE_SCATTER, summed_s, middle_s, **half)
                self.world.mark_all(Kind.LANE_ALLGATHER, middle_s, **half)
