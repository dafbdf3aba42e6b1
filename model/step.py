"""One training step, simulated: compute, Horovod's cycle, allreduces, updates, all sharing cores and links.

Reference 8.2 to 8.8. Each simulated host has an engine worker that runs forward, backward bulks and updates
in the order in which they become ready; Horovod's background threads act as one process, because each of
their cycles is a barrier over all ranks.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from ..tracer.schema import Kind
from .collectives import Leg, lane_legs, rank_work, stock_legs
from .fluid import Activity, Fluid, Running
from .fusion import fuse, rounded_threshold
from .horovod import CycleClock, control_s, negotiation_s
from .openmpi import control_rounds
from .scenario import Scenario
from .sites import Sites, cpu_of
from .workload import GradientTensor, backward_bulks

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Mark:
    """One simulated interval on a host; the fields mean what the Trace schema says."""

    kind: Kind
    host: str
    start_s: float
    end_s: float
    tensor: str | None = None
    layer: str | None = None
    bucket: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class BucketRun:
    """One fused bucket: when its last gradient was queued, when Horovod took it up, when it was done."""

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


@dataclass(frozen=True)
class StepDraw:
    """How one step differs from the typical one: factors on compute by host, and on each allreduce in turn."""

    compute: tuple[float, ...] = ()
    communication: tuple[float, ...] = ()


@dataclass
class StepRun:
    """What happened in one simulated step; times in s from the start of its forward pass."""

    step_s: float
    forward_end_s: float
    backward_end_s: float
    last_done_s: float
    buckets: list[BucketRun]
    ready_s: dict[str, float]
    done_s: dict[str, float]
    busy: dict[str, float]
    marks: list[Mark] = field(default_factory=list)


def simulate_step(scenario: Scenario, draw: StepDraw | None = None, *, record: bool = False) -> StepRun:
    """Simulate one step of `scenario`; `record` keeps the marks for a timeline."""
    return _Step(scenario, draw or StepDraw(), record).run()


class _Step:
    def __init__(self, scenario: Scenario, draw: StepDraw, record: bool) -> None:
        self.scenario = scenario
        self.draw = draw
        self.record = record
        self.workload = scenario.workload
        self.costs = scenario.parameters
        self.sites = Sites.of(scenario.cluster, self.costs.wire_efficiency)
        self.env = simpy.Environment()
        self.fluid = Fluid(self.env, self.sites.capacity)
        self.workers = {host.name: simpy.Resource(self.env, 1) for host in self.sites.hosts}
        self.bit_order = self.workload.fusion_order
        self.queued: dict[str, GradientTensor] = {}
        self.hosts_ready: dict[str, int] = {}
        self.ready_s: dict[str, float] = {}
        self.done_s: dict[str, float] = {}
        self.wake = self.env.event()
        self.done_events = {tensor.name: self.env.event() for tensor in self.workload.tensors}
        self.buckets: list[BucketRun] = []
        self.marks: list[Mark] = []
        self.forward_end_s = 0.0
        self.backward_end_s = 0.0
        self.computing = 0
        threads = self.workload.cpu_share if self.workload.device == "cpu" else 0.0
        self.saturates = threads > 0 and self.sites.saturated_by(threads)

    def run(self) -> StepRun:
        trainings = [
            self.env.process(self.training(host.name, number)) for number, host in enumerate(self.sites.hosts)
        ]
        self.env.process(self.background())
        self.env.run(until=simpy.AllOf(self.env, trainings))
        end = self.env.now + self.workload.overhead_s
        busy = {name: used / (self.fluid.capacity[name] * end) for name, used in self.fluid.busy.items()}
        return StepRun(
            end,
            self.forward_end_s,
            self.backward_end_s,
            max(self.done_s.values(), default=self.backward_end_s),
            self.buckets,
            self.ready_s,
            self.done_s,
            busy,
            self.marks,
        )

    def mark(self, kind: Kind, host: str, start_s: float, **fields: Any) -> None:
        if self.record:
            self.marks.append(Mark(kind, host, start_s, self.env.now, **fields))

    def mark_all(self, kind: Kind, start_s: float, **fields: Any) -> None:
        for host in self.sites.hosts:
            self.mark(kind, host.name, start_s, **fields)

    # -- training ------------------------------------------------------------------------------------------

    def compute(self, host: str, seconds: float, factor: float) -> Process:
        """Run `seconds` of compute on the host's engine worker, in its turn."""
        site = next(site for site in self.sites.hosts if site.name == host)
        on_cpu = self.workload.device == "cpu"
        needs = (
            {cpu_of(host): self.workload.cpu_share * site.ranks / site.speed}
            if self.workload.cpu_share
            else {}
        )
        speed = site.speed if on_cpu else 1.0
        with self.workers[host].request() as turn:
            yield turn
            self.computing += 1
            yield self.fluid.start(Activity("compute", seconds * factor, needs, bound=speed))
            self.computing -= 1

    def training(self, host: str, number: int) -> Process:
        work = self.workload
        factor = self.draw.compute[number] if number < len(self.draw.compute) else 1.0
        yield from self.compute(host, work.forward_s, factor)
        self.forward_end_s = max(self.forward_end_s, self.env.now)
        self.mark(Kind.FORWARD, host, 0.0)
        start_s, before_s = self.env.now, 0.0
        updates = [self.env.process(self.update(host, group, factor)) for group in self.update_groups()]
        for ready_s, tensors in backward_bulks(work.tensors):
            yield from self.compute(host, ready_s - before_s, factor)
            before_s = ready_s
            self.env.process(self.enqueue(host, tensors, start_s))
        yield from self.compute(host, max(0.0, work.backward_s - before_s), factor)
        self.backward_end_s = max(self.backward_end_s, self.env.now)
        self.mark(Kind.BACKWARD, host, start_s)
        yield simpy.AllOf(self.env, updates)

    def update_groups(self) -> list[list[GradientTensor]]:
        """Neighbours in the sorted parameter list, as many as one optimizer operation takes."""
        ordered = sorted(self.workload.tensors, key=lambda tensor: tensor.index)
        size = max(1, self.workload.update_group)
        return [ordered[i : i + size] for i in range(0, len(ordered), size)]

    def update(self, host: str, group: Sequence[GradientTensor], factor: float) -> Process:
        yield simpy.AllOf(self.env, [self.done_events[tensor.name] for tensor in group])
        share = sum(tensor.bytes for tensor in group) / self.workload.gradient_bytes
        start_s = self.env.now
        yield from self.compute(host, self.workload.update_s * share, factor)
        self.mark(Kind.UPDATE, host, start_s)

    def waking_s(self, times: int) -> float:
        """Seconds that Horovod's threads wait for a core when they wake `times` times from now on."""
        return times * self.costs.busy_wait_s if self.saturates and self.computing else 0.0

    # -- Horovod -------------------------------------------------------------------------------------------

    def enqueue(self, host: str, tensors: Sequence[GradientTensor], backward_s: float) -> Process:
        ready_s = self.env.now
        yield self.env.timeout(self.costs.enqueue_s)
        for tensor in tensors:
            self.ready_s[tensor.name] = ready_s
            self.mark(
                Kind.READY, host, backward_s, tensor=tensor.name, layer=tensor.layer, bytes=tensor.bytes
            )
            self.mark(Kind.ENQUEUE, host, ready_s, tensor=tensor.name, layer=tensor.layer, bytes=tensor.bytes)
            self.hosts_ready[tensor.name] = self.hosts_ready.get(tensor.name, 0) + 1
            if self.hosts_ready[tensor.name] == len(self.sites.hosts):
                self.queued[tensor.name] = tensor
        if self.queued and not self.wake.triggered:
            self.wake.succeed()

    def background(self) -> Process:
        ranks = self.scenario.cluster.ranks
        latency = self.scenario.cluster.worst_latency_s
        agree_s = control_s(self.costs, ranks, latency)
        clock = CycleClock(self.scenario.cycle_s, self.costs.cycle_slack_s, agree_s)
        while True:
            yield self.wake
            clock.control_s = agree_s + self.waking_s(control_rounds(ranks))
            start_s = clock.start_for(self.env.now)
            yield self.env.timeout(max(0.0, start_s - self.env.now))
            seen_s = dict.fromkeys(self.queued, self.env.now)
            batch = sorted(self.queued.values(), key=lambda tensor: self.bit_order[tensor.name])
            self.queued.clear()
            self.wake = self.env.event()
            extra = 0.0 if self.scenario.cached else negotiation_s(self.costs, ranks, len(batch), latency)
            yield self.env.timeout(self.waking_s(control_rounds(ranks)))
            # As the last rank to arrive sees it: the others wait for it inside the call.
            control_start_s = self.env.now
            yield self.env.timeout(agree_s + extra)
            self.mark_all(Kind.NEGOTIATE, control_start_s)
            for tensor in batch:
                for host in self.sites.hosts:
                    self.mark(
                        Kind.NEGOTIATE, host.name, seen_s[tensor.name], tensor=tensor.name, bytes=tensor.bytes
                    )
            local = max(host.ranks for host in self.sites.hosts)
            for bucket in fuse(batch, rounded_threshold(self.scenario.fusion_bytes, local)):
                yield from self.perform(bucket)
            clock.ended(start_s, self.env.now)

    def perform(self, bucket: Sequence[GradientTensor]) -> Process:
        """Copy in, reduce over all ranks, copy out, tell the engine: one bucket after the other."""
        number, start_s = len(self.buckets), self.env.now
        nbytes = sum(tensor.bytes for tensor in bucket)
        about = {"bucket": number, "bytes": nbytes}
        yield self.env.timeout(self.costs.bucket_s + self.costs.tensor_s * len(bucket))
        if len(bucket) > 1:
            copy_s = self.env.now
            yield self.fluid.start(rank_work("fuse_in", nbytes * self.costs.fuse_s_per_byte, self.sites))
            self.mark_all(Kind.FUSE_IN, copy_s, **about)
        allreduce_s = self.env.now
        noise = self.draw.communication[number] if number < len(self.draw.communication) else 1.0
        for leg in self.legs(nbytes, bucket):
            yield from self.run_leg(leg, noise)
        reduced_s = self.env.now
        self.mark_all(Kind.ALLREDUCE, allreduce_s, **about)
        if len(bucket) > 1:
            yield self.fluid.start(rank_work("fuse_out", nbytes * self.costs.fuse_s_per_byte, self.sites))
            self.mark_all(Kind.FUSE_OUT, reduced_s, **about)
        ready_s = max(self.ready_s[tensor.name] for tensor in bucket)
        self.buckets.append(BucketRun(tuple(bucket), ready_s, start_s, allreduce_s, reduced_s, self.env.now))
        for tensor in bucket:
            self.done_s[tensor.name] = self.env.now
            self.done_events[tensor.name].succeed()
            self.mark_all(
                Kind.DONE,
                reduced_s,
                tensor=tensor.name,
                layer=tensor.layer,
                bucket=number,
                bytes=tensor.bytes,
            )

    def legs(self, nbytes: int, bucket: Sequence[GradientTensor]) -> list[Leg]:
        element = 8 if bucket[0].dtype.endswith("64") else 2 if bucket[0].dtype == "float16" else 4
        if self.scenario.aux and nbytes >= self.scenario.lane_threshold_bytes:
            return lane_legs(self.sites, self.costs, nbytes, self.scenario.aux)
        return stock_legs(self.sites, self.costs, nbytes, max(1, nbytes // element))

    def run_leg(self, leg: Leg, noise: float) -> Process:
        spinning: list[Running] = []
        if leg.spins:
            for host in self.sites.hosts:
                spin = Activity(
                    "spin", float("inf"), {cpu_of(host.name): float(host.ranks)}, 1.0, self.costs.spin_weight
                )
                spinning.append(self.fluid.start(spin))
        latency_s = leg.latency_s + self.waking_s(leg.wakes)
        if latency_s > 0:
            yield self.env.timeout(latency_s * noise)
        if leg.activity is not None:
            activity = leg.activity
            if noise != 1.0:
                needs = {name: need * noise for name, need in activity.needs.items()}
                activity = Activity(
                    activity.name, activity.amount, needs, activity.bound / noise, activity.weight / noise
                )
            yield self.fluid.start(activity)
        for running in spinning:
            self.fluid.cancel(running)
