"""One training step, simulated: compute, Horovod's cycle, allreduces, updates, all sharing cores and links.

Reference 8.2 to 8.8. `Engine` is the training of each simulated host, `Background` Horovod's threads.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import simpy

from .background import Background, BucketRun
from .engine import Engine
from .scenario import Scenario
from .variability import slowest_factor
from .workload import GradientTensor
from .world import Mark, World

__all__ = ["BucketRun", "Mark", "StepDraw", "StepRun", "simulate_step"]

_STEPS_TO_SETTLE = 3


@dataclass(frozen=True)
class StepDraw:
    """How one step differs from the typical one: factors on compute by host, and on each allreduce in turn."""

    compute: tuple[float, ...] = ()
    communication: tuple[float, ...] = ()


@dataclass
class StepRun:
    """What happened in one simulated step; times in s from the start of its forward pass.

    ``step_s`` is from the start of a forward pass to the start of the next; ``busy`` the share of each
    resource that was in use over the simulated time.
    """

    step_s: float
    forward_end_s: float
    backward_end_s: float
    last_done_s: float
    buckets: list[BucketRun]
    ready_s: dict[str, float]
    done_s: dict[str, float]
    busy: dict[str, float]
    marks: list[Mark] = field(default_factory=list)


def simulate_step(
    scenario: Scenario,
    draw: StepDraw | None = None,
    *,
    record: bool = False,
    free_buckets: frozenset[int] = frozenset(),
) -> StepRun:
    """Simulate one step of `scenario`; `record` keeps the marks for a timeline, `free_buckets` cost nothing.

    Without a `draw` it is the typical step: compute takes as long as on the rank that is typically slowest.
    A loop that does not block is simulated for a few steps until one follows the other as in a long run.
    """
    return _Step(scenario, draw or _typical(scenario), record, free_buckets).run()


class _Step:
    def __init__(self, scenario: Scenario, draw: StepDraw, record: bool, free: frozenset[int]) -> None:
        self.scenario = scenario
        self.world = World(scenario, record)
        self.background = Background(self.world, self._tensor_done, draw.communication, free)
        steps = 1 if scenario.workload.blocking else _STEPS_TO_SETTLE
        self.engines = [
            Engine(self.world, host, self.background, _factor(draw, number), steps)
            for number, host in enumerate(self.world.sites.hosts)
        ]
        self.done_s: dict[str, float] = {}
        self.left = 0

    def _tensor_done(self, tensor: GradientTensor) -> None:
        self.done_s[tensor.name] = self.world.env.now
        for engine in self.engines:
            engine.tensor_done(tensor)

    def run(self) -> StepRun:
        env = self.world.env
        trainings = [env.process(engine.run()) for engine in self.engines]
        env.process(self.background.run())
        env.run(until=simpy.AllOf(env, trainings))
        work = self.scenario.workload
        start = min(engine.start_s for engine in self.engines)
        end = max(engine.end_s for engine in self.engines)
        if work.blocking:
            end += work.overhead_s
        capacity = self.world.fluid.capacity
        busy = {
            name: used / (capacity[name] * max(end, 1e-12)) for name, used in self.world.fluid.busy.items()
        }
        count = len(work.tensors)
        buckets = self._last_buckets(count)
        shifted = [_shifted(bucket, start) for bucket in buckets]
        done_s = {t.name: self.done_s[t.name] - start for bucket in buckets for t in bucket.tensors}
        return StepRun(
            step_s=end - start,
            forward_end_s=max(engine.forward_end_s for engine in self.engines) - start,
            backward_end_s=max(engine.backward_end_s for engine in self.engines) - start,
            last_done_s=max(done_s.values(), default=0.0),
            buckets=shifted,
            ready_s={name: ready - start for name, ready in self.background.ready_s.items()},
            done_s=done_s,
            busy=busy,
            marks=[_moved(mark, start) for mark in self.world.marks if mark.start_s >= start - 1e-12],
        )

    def _last_buckets(self, tensors: int) -> list[BucketRun]:
        """The buckets of the last whole step: its gradients, counted from the end."""
        chosen: list[BucketRun] = []
        for bucket in reversed(self.background.buckets):
            if sum(len(b.tensors) for b in chosen) >= tensors:
                break
            chosen.append(bucket)
        return chosen[::-1]


def _typical(scenario: Scenario) -> StepDraw:
    factor = slowest_factor(scenario)
    return StepDraw() if factor == 1.0 else StepDraw(compute=(factor,) * len(scenario.cluster.hosts))


def _factor(draw: StepDraw, number: int) -> float:
    return draw.compute[number] if number < len(draw.compute) else 1.0


def _moved(mark: Mark, start: float) -> Mark:
    return dataclasses.replace(mark, start_s=mark.start_s - start, end_s=mark.end_s - start)


def _shifted(bucket: BucketRun, start: float) -> BucketRun:
    if start == 0.0:
        return bucket
    return BucketRun(
        bucket.tensors,
        bucket.ready_s - start,
        bucket.start_s - start,
        bucket.allreduce_start_s - start,
        bucket.allreduce_end_s - start,
        bucket.end_s - start,
    )
