"""A prediction as a Trace: simulated steps in the recorder's own schema, so every report and export reads them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..tracer.schema import Kind
from ..tracer.trace import HostInfo, TensorInfo, Trace, TraceMeta, write_trace
from .scenario import Scenario
from .step import StepDraw, StepRun, simulate_step
from .variability import largest_of
from .world import Mark

_TRACKS = {
    Kind.FORWARD: "step",
    Kind.BACKWARD: "step",
    Kind.UPDATE: "step",
    Kind.PUSH: "python",
    Kind.ENQUEUE: "engine",
    Kind.LANE_LOCAL_SUM: "lane",
    Kind.LANE_REDUCE_SCATTER: "lane",
    Kind.LANE_ALLGATHER: "lane",
}
_COLUMNS = ["step", "rank", "host", "process", "track", "kind", "tensor", "layer", "bucket", "bytes", "lane"]
_COLUMNS += ["t_start_ns", "t_end_ns"]
_RANK_PROCESS, _LANE_PROCESS = 1000, 100_000


def write_simulated_trace(
    scenario: Scenario, path: str | Path, *, steps: int = 2, seed: int | None = None, noise: float = 0.0
) -> Trace:
    """Simulate `steps` steps, the first uncached, and write them as a trace with ``source`` "simulated".

    With a `seed` compute and communication of each step are drawn from the workload's spread; `noise` is the
    relative sigma of extra noise on the length of each small event (what clocks and the scheduler add in a
    recorded trace); control calls get it once for all ranks, and the ranks that came first wait longer.
    """
    random = np.random.default_rng(seed)
    frames, begin_s = [], 1.0
    for step in range(steps + 1):
        draw = None if seed is None else _draw(scenario, random)
        run = simulate_step(scenario.replaced(cached=step > 0), draw, record=True)
        frames.append(_frame(scenario, run, step, begin_s, random, noise if seed is not None else 0.0))
        begin_s += run.step_s
    return write_trace(path, _meta(scenario, steps), pd.concat(frames, ignore_index=True))


def _draw(scenario: Scenario, random: np.random.Generator) -> StepDraw:
    """One step's factors; where one host stands for all it is as slow as the slowest of them."""
    spread, cluster = scenario.workload.spread, scenario.cluster
    shared = random.standard_normal() * math.sqrt(spread.correlation)
    own = random.standard_normal(cluster.ranks) * math.sqrt(1 - spread.correlation)
    usual = largest_of(scenario.workload.ranks_seen) * math.sqrt(1 - spread.correlation)
    if cluster.is_uniform:
        own = np.full(1, own.max() - usual)
    else:
        own = np.array([part.max() - usual for part in np.array_split(own, len(cluster.hosts))])
    buckets = len(scenario.workload.tensors)
    noise = np.exp(spread.communication * random.standard_normal(buckets))
    return StepDraw(tuple(np.exp(spread.compute * (shared + own)).tolist()), tuple(noise.tolist()))


def _frame(
    scenario: Scenario, run: StepRun, step: int, begin_s: float, random: np.random.Generator, noise: float
) -> pd.DataFrame:
    """The marks of one step as rows: those of every host's ranks, and of its lanes, which have no rank."""
    shown = {mark.host for mark in run.marks}
    factors = np.exp(noise * random.standard_normal(len(run.marks)))
    marks = list(zip(run.marks, factors.tolist(), strict=True))
    callbacks = np.random.default_rng(step)
    rows: list[tuple[Any, ...]] = []
    rank = 0
    for number, host in enumerate(scenario.cluster.hosts):
        source = host.name if host.name in shown else next(iter(shown))
        mine = [(mark, factor) for mark, factor in marks if mark.host == source]
        for mark, _ in mine:
            if mark.lane is not None:
                process = number << 32 | _LANE_PROCESS + mark.lane
                rows.append((step, None, host.name, process, *_cells(mark, begin_s, mark.end_s)))
        for _ in range(host.ranks):
            late = rank == step % scenario.cluster.ranks
            for mark, factor in _one_update([pair for pair in mine if pair[0].lane is None]):
                end_s = mark.end_s
                if noise and mark.kind is Kind.DONE:
                    end_s += noise * scenario.parameters.tensor_s * callbacks.standard_normal()
                elif noise:
                    end_s = _noisy_end_s(mark, factor, late, noise, random)
                process = number << 32 | _RANK_PROCESS + rank
                rows.append((step, rank, host.name, process, *_cells(mark, begin_s, end_s)))
            rank += 1
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.astype({"rank": "Int32", "bucket": "Int32", "lane": "Int32", "bytes": "Int64"})


def _one_update(marks: list[tuple[Mark, float]]) -> list[tuple[Mark, float]]:
    """The same with one update: from the first optimizer operation to the last, as recordings have it."""
    updates = [pair for pair in marks if pair[0].kind is Kind.UPDATE]
    others = [pair for pair in marks if pair[0].kind is not Kind.UPDATE]
    if not updates:
        return others
    first = min(updates, key=lambda pair: pair[0].start_s)
    end_s = max(mark.end_s for mark, _ in updates)
    return [*others, (dataclasses.replace(first[0], end_s=end_s), first[1])]


def _noisy_end_s(mark: Mark, factor: float, late: bool, noise: float, random: np.random.Generator) -> float:
    """Where a small event ends when its length is noisy; the rank that is `late` to a control call waits for none."""
    length_s = mark.end_s - mark.start_s
    if mark.kind in (Kind.ENQUEUE, Kind.FUSE_IN, Kind.FUSE_OUT):
        length_s *= math.exp(noise * random.standard_normal())
    elif mark.kind is Kind.NEGOTIATE and mark.tensor is None:
        length_s *= factor * (1 + (0.0 if late else random.exponential(noise)))
    return mark.start_s + length_s


def _cells(mark: Mark, begin_s: float, end_s: float) -> tuple[Any, ...]:
    waits = mark.tensor is not None and mark.kind in (Kind.READY, Kind.NEGOTIATE, Kind.DONE)
    track = "tensors" if waits else _TRACKS.get(mark.kind, "horovod")
    start_ns, end_ns = round((begin_s + mark.start_s) * 1e9), round((begin_s + end_s) * 1e9)
    about = (mark.kind.value, mark.tensor, mark.layer, mark.bucket, mark.bytes, mark.lane)
    return (track, *about, start_ns, max(start_ns, end_ns))


def _meta(scenario: Scenario, steps: int) -> TraceMeta:
    rank, hosts = 0, []
    for host in scenario.cluster.hosts:
        hosts.append(HostInfo(host.name, max(1, round(host.cores)), list(range(rank, rank + host.ranks))))
        rank += host.ranks
    return TraceMeta(
        source="simulated",
        hosts=hosts,
        ranks=rank,
        batch_per_rank=scenario.workload.batch_per_rank,
        tensors=[
            TensorInfo(t.name, t.name, t.layer, t.bytes, t.dtype, t.index) for t in scenario.workload.tensors
        ],
        settings={
            "aux": scenario.aux,
            "fusion_threshold_bytes": scenario.fusion_bytes,
            "cycle_time_s": scenario.cycle_s,
        },
        notes=[f"simulated: {steps} steps of {scenario.workload.name} with {scenario.aux} lanes"],
    )
