"""The training of one host's ranks: an engine worker that runs forward, backward and updates in their turn.

Operations take their turn in the order in which they become ready (MXNet's first-in-first-out worker,
reference 5 and 8.7). The next forward pass waits for all updates when the loop blocks, else each of its parts waits for the
weights that it reads.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import simpy

from ..tracer.schema import Kind
from .background import Background
from .cluster import Host
from .fluid import Activity, Running
from .sites import cpu_of
from .workload import GradientTensor, backward_bulks
from .world import World

Process = Generator[simpy.Event, Any, None]


class Engine:
    """One host's training over `steps` steps; only the last one is kept in ``*_end_s`` and in the marks."""

    def __init__(self, world: World, host: Host, background: Background, factor: float, steps: int) -> None:
        self.world = world
        self.env = world.env
        self.host = host
        self.background = background
        self.factor = factor
        self.steps = steps
        self.worker = simpy.Resource(self.env, 1)
        self.updated: dict[str, simpy.Event] = {}
        self.done: dict[str, simpy.Event] = {}
        self.start_s = self.forward_end_s = self.backward_end_s = self.updates_end_s = self.end_s = 0.0
        self.bulks = backward_bulks(world.workload.tensors)
        self.groups = update_groups(world.workload.tensors, world.workload.update_group)

    def tensor_done(self, tensor: GradientTensor) -> None:
        """Horovod's callback for one gradient."""
        self.done[tensor.name].succeed()

    def run(self) -> Process:
        """All steps, and in a loop that does not block the wait for the next step's first weights."""
        work = self.world.workload
        for step in range(self.steps):
            loading = self._load_data()
            yield from self._forward(waits=step > 0)
            self.forward_end_s = self.env.now
            self.world.mark(Kind.FORWARD, self.host.name, self.start_s)
            self._mark_pushes()
            # By now the step before is reduced and updated: its events can be replaced.
            self.done = {tensor.name: self.env.event() for tensor in work.tensors}
            updates = [self.env.process(self._update(group)) for group in self.groups]
            self.updated = {
                t.name: done for group, done in zip(self.groups, updates, strict=True) for t in group
            }
            yield from self._backward()
            if work.blocking:
                yield simpy.AllOf(self.env, updates)
            if loading is not None:
                yield loading
            if work.blocking and step + 1 < self.steps:
                yield self.env.timeout(work.overhead_s)
        if not work.blocking:
            yield from self._wait_for([tensor.name for tensor in self.bulks[-1][1]])
        self.end_s = self.env.now
        yield simpy.AllOf(self.env, list(self.updated.values()))

    def _forward(self, waits: bool) -> Process:
        """Layers in forward order, the reverse of the ready order, each as long as its share of backward."""
        work = self.world.workload
        self.start_s = self.env.now
        if work.blocking or not waits:
            yield from self._compute(work.forward_s)
            return
        before_s = [0.0, *(ready_s for ready_s, _ in self.bulks[:-1])]
        total = self.bulks[-1][0] or 1.0
        for place, ((ready_s, tensors), start_s) in enumerate(
            reversed(list(zip(self.bulks, before_s, strict=True)))
        ):
            yield from self._wait_for([tensor.name for tensor in tensors])
            if place == 0:
                self.start_s = self.env.now
            yield from self._compute(work.forward_s * (ready_s - start_s) / total)

    def _wait_for(self, names: Sequence[str]) -> Process:
        yield simpy.AllOf(self.env, [self.updated[name] for name in names])

    def _backward(self) -> Process:
        start_s, before_s = self.env.now, 0.0
        for ready_s, tensors in self.bulks:
            yield from self._compute(ready_s - before_s)
            before_s = ready_s
            self.env.process(self._enqueue(tensors))
        yield from self._compute(max(0.0, self.world.workload.backward_s - before_s))
        self.backward_end_s = self.env.now
        self.world.mark(Kind.BACKWARD, self.host.name, start_s)

    def _enqueue(self, tensors: Sequence[GradientTensor]) -> Process:
        ready_s = self.env.now
        yield self.env.timeout(self.world.costs.enqueue_s)
        for tensor in tensors:
            about: dict[str, Any] = {"tensor": tensor.name, "layer": tensor.layer, "bytes": tensor.bytes}
            self.world.mark(Kind.READY, self.host.name, self._pushed_s(tensor), ready_s, **about)
            self.world.mark(Kind.ENQUEUE, self.host.name, ready_s, **about)
        self.background.enqueue(self.host.name, tensors, ready_s)

    def _pushed_s(self, tensor: GradientTensor) -> float:
        """When Python hands the tensor's allreduce to the engine: long before its gradient is there."""
        push = self.world.workload.push
        return self.start_s + push.first_s + tensor.index * push.every_s

    def _mark_pushes(self) -> None:
        for tensor in self.world.workload.tensors:
            about: dict[str, Any] = {"tensor": tensor.name, "layer": tensor.layer, "bytes": tensor.bytes}
            pushed_s = self._pushed_s(tensor)
            end_s = pushed_s + self.world.workload.push.call_s
            self.world.mark(Kind.PUSH, self.host.name, pushed_s, end_s, **about)

    def _update(self, group: Sequence[GradientTensor]) -> Process:
        """One optimizer operation: after all its gradients are reduced, in its turn."""
        yield simpy.AllOf(self.env, [self.done[tensor.name] for tensor in group])
        work = self.world.workload
        share = sum(tensor.bytes for tensor in group) / work.gradient_bytes
        start_s = self.env.now
        yield from self._compute(work.update_s * share)
        self.updates_end_s = self.env.now
        self.world.mark(Kind.UPDATE, self.host.name, start_s)

    def _compute(self, seconds: float) -> Process:
        """`seconds` of compute on the worker, in its turn."""
        work, host = self.world.workload, self.host
        needs = {cpu_of(host.name): work.cpu_share * host.ranks / host.speed} if work.cpu_share else {}
        bound = host.speed if work.device == "cpu" else 1.0
        with self.worker.request() as turn:
            yield turn
            self.world.computing += 1
            yield self.world.fluid.start(Activity("compute", seconds * self.factor, needs, bound))
            self.world.computing -= 1

    def _load_data(self) -> Running | None:
        """The loaders' CPU work for the next batch: the next step cannot begin before it is there."""
        work, host = self.world.workload, self.host
        if work.loader_cpu_s <= 0:
            return None
        needs = {cpu_of(host.name): float(host.ranks)}
        bound = work.loader_threads * host.speed
        return self.world.fluid.start(
            Activity("loading", work.loader_cpu_s, needs, bound, weight=float(work.loader_threads))
        )


def update_groups(tensors: Sequence[GradientTensor], size: int) -> list[list[GradientTensor]]:
    """Neighbours in the sorted parameter list, as many as one optimizer operation takes."""
    ordered = sorted(tensors, key=lambda tensor: tensor.index)
    size = max(1, size)
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]
