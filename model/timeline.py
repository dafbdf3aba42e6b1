"""A prediction as a Trace: simulated steps in the recorder's own schema, so every report and export reads them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from ..tracer.schema import Kind
from ..tracer.trace import HostInfo, TensorInfo, Trace, TraceMeta, write_trace
from .scenario import Scenario
from .step import StepDraw, StepRun, simulate_step
from .variability import largest_of

_TRACKS = {
    Kind.FORWARD: "python",
    Kind.BACKWARD: "python",
    Kind.UPDATE: "python",
    Kind.READY: "engine",
    Kind.ENQUEUE: "engine",
}


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
    shown = {mark.host for mark in run.marks}
    factors = np.exp(noise * random.standard_normal(len(run.marks)))
    rows = []
    rank = 0
    for host in scenario.cluster.hosts:
        source = host.name if host.name in shown else next(iter(shown))
        for _ in range(host.ranks):
            for number, mark in enumerate(run.marks):
                if mark.host != source:
                    continue
                start_s, end_s = mark.start_s, mark.end_s
                if noise and mark.kind in (Kind.ENQUEUE, Kind.FUSE_IN, Kind.FUSE_OUT):
                    end_s = start_s + (end_s - start_s) * math.exp(noise * random.standard_normal())
                elif noise and mark.kind is Kind.NEGOTIATE and mark.tensor is None:
                    early = random.exponential(noise) if rank != step % scenario.cluster.ranks else 0.0
                    end_s = start_s + (end_s - start_s) * float(factors[number]) * (1 + early)
                rows.append(
                    (
                        step,
                        rank,
                        host.name,
                        1000 + rank,
                        _TRACKS.get(mark.kind, "horovod"),
                        mark.kind.value,
                        mark.tensor,
                        mark.layer,
                        mark.bucket,
                        mark.bytes,
                        round((begin_s + start_s) * 1e9),
                        round((begin_s + end_s) * 1e9),
                    )
                )
            rank += 1
    columns = ["step", "rank", "host", "process", "track", "kind", "tensor", "layer", "bucket", "bytes"]
    frame = pd.DataFrame(rows, columns=[*columns, "t_start_ns", "t_end_ns"])
    return frame.astype({"bucket": "Int32", "bytes": "Int64"})


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
