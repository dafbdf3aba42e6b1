"""The recorded run itself as a scenario: its own workload, its own cluster, its own settings.

A trace holds compute times as they were *beside the communication of that run*. `recorded_scenario` takes
that contention out again: it looks for the compute times with which the simulator, at the recorded settings,
shows the recorded forward, ready, backward and update times.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ..tracer.trace import Trace
from .bucket_turns import turns_by_bucket
from .calibration import Calibration
from .cluster import Cluster
from .fusion import DEFAULT_THRESHOLD_BYTES
from .horovod import DEFAULT_CYCLE_S
from .lane_use import threshold_bytes
from .observations import Observations, lanes_of, observe, update_group_of
from .prediction import Prediction, predict
from .scenario import Scenario
from .step import StepRun, simulate_step
from .workload import GradientTensor, StepSpread, Workload, backward_bulks

_ROUNDS = 24
_AGREES = 0.002
_PART_OF_THE_WAY = 0.6


def workload_as_recorded(trace: Trace, observed: Observations | None = None) -> Workload:
    """The workload with the trace's own medians, contention included."""
    seen = observed or observe(trace)
    known = {tensor.name: tensor for tensor in trace.meta.tensors}
    tensors = []
    for number, row in enumerate(seen.ready.to_dict("records")):
        name, nbytes = str(row["tensor"]), row["bytes"]
        info = known.get(name)
        tensors.append(
            GradientTensor(
                name=name,
                layer=(info.layer if info else None) or name,
                bytes=info.bytes if info else int(nbytes),
                dtype=info.dtype if info else "float32",
                ready_s=float(row["ready_s"]),
                index=info.index if info else number,
                bit=int(row["bit"]) if row["bit"] == row["bit"] else number,
            )
        )
    steps = seen.steps
    backward_s = max(float(steps["backward_s"].median()), tensors[-1].ready_s)
    return Workload(
        name=trace.path.name,
        tensors=tuple(tensors),
        forward_s=float(steps["forward_s"].median()),
        backward_s=backward_s,
        update_s=float(steps["tail_s"].median()),
        overhead_s=float(steps["gap_s"].median()),
        update_group=update_group_of(trace),
        blocking=not seen.runs_ahead,
        batch_per_rank=trace.meta.batch_per_rank or 1,
        ranks_seen=max(1, trace.meta.ranks),
        spread=_spread(seen),
        push=seen.push,
        unknown_s=seen.unknown_s,
        source=f"trace {trace.path}",
    )


def _spread(seen: Observations) -> StepSpread:
    """Variation from step to step, as the middle 80 % show it: hiccups are part of it, a single one is not all."""

    def varies(values: Any) -> float:
        centre = float(values.median())
        wide = float(values.quantile(0.9) - values.quantile(0.1)) / (2 * 1.2816)
        return wide / centre if centre > 0 else 0.0

    shared = varies(seen.steps["forward_s"] + seen.steps["backward_s"])
    compute = math.hypot(shared, seen.own_variation)
    correlation = (shared / compute) ** 2 if compute > 0 else 0.5
    sums = seen.buckets.groupby("step")["seconds"].sum()
    return StepSpread(compute=compute, communication=varies(sums), correlation=correlation)


def knobs(trace: Trace) -> dict[str, Any]:
    """The recorded settings as fields of a `Scenario`."""
    settings = trace.meta.settings

    def number(name: str, default: float) -> float:
        value = settings.get(name)
        return float(value) if isinstance(value, int | float) else default

    return {
        "aux": lanes_of(trace),
        "fusion_bytes": int(number("fusion_threshold_bytes", DEFAULT_THRESHOLD_BYTES)),
        "cycle_s": number("cycle_time_s", DEFAULT_CYCLE_S),
    }


def recorded_cluster(trace: Trace, calibration: Calibration) -> Cluster:
    """The hosts of the trace with the calibration's network and cores."""
    if not trace.meta.hosts:  # an imported file does not say: the calibration has its own assumption
        return calibration.cluster()
    hosts = len(trace.meta.hosts)
    ranks = max(1, (trace.meta.ranks or hosts) // hosts)
    return calibration.cluster(hosts=hosts, ranks_per_host=ranks)


def recorded_scenario(
    trace: Trace,
    calibration: Calibration,
    observed: Observations | None = None,
    cluster: Cluster | None = None,
) -> Scenario:
    """The scenario of the recorded run, with compute times freed from that run's contention."""
    seen = observed or observe(trace)
    target = workload_as_recorded(trace, seen)
    place = cluster or recorded_cluster(trace, calibration)
    settings = knobs(trace)
    if not seen.buckets["lanes"].all():
        turns = turns_by_bucket(seen, Scenario(target, place, calibration).sites, calibration.parameters)
        target = dataclasses.replace(target, bucket_turns=turns)
    scenario = Scenario(
        target,
        place,
        calibration,
        lane_threshold_bytes=threshold_bytes(seen.buckets, settings["aux"]),
        **settings,
    )
    tail_s = float(seen.steps["tail_s"].median())
    best, least = scenario, math.inf
    for _ in range(_ROUNDS):
        run = simulate_step(scenario)
        miss = _miss(scenario.workload, target, tail_s, run)
        if miss < least:
            best, least = scenario, miss
        if miss < _AGREES:
            break
        scenario = scenario.replaced(workload=_nearer(scenario.workload, target, tail_s, run))
    return best


def _miss(work: Workload, target: Workload, tail_s: float, run: StepRun) -> float:
    """How far the simulated parts of a step are from the recorded ones: the sum of differences over their whole."""
    off = abs(run.forward_end_s - target.forward_s)
    off += abs(run.backward_end_s - run.forward_end_s - target.backward_s)
    off += abs(_tail_s(work, run) - tail_s)
    late = [
        abs(run.ready_s[tensor.name] - run.forward_end_s - tensor.ready_s) * tensor.bytes
        for tensor in target.tensors
    ]
    off += sum(late) / target.gradient_bytes
    return off / (target.forward_s + target.backward_s + tail_s)


def _tail_s(work: Workload, run: StepRun) -> float:
    return run.step_s - work.overhead_s - run.last_done_s


def _nearer(work: Workload, target: Workload, tail_s: float, run: StepRun) -> Workload:
    """`work` with each part scaled towards recorded / simulated: a fixed point where the two agree.

    Only part of the way: a gradient that is ready a little earlier may join another bucket, and all changes.
    """
    forward_s = work.forward_s * _ratio(target.forward_s, run.forward_end_s)
    wanted = {tensor.name: tensor.ready_s for tensor in target.tensors}
    now_s, before_wanted, before_seen, before_work = 0.0, 0.0, 0.0, 0.0
    tensors: list[GradientTensor] = []
    for ready_s, bulk in backward_bulks(work.tensors):
        name = bulk[-1].name
        seen_s = run.ready_s[name] - run.forward_end_s
        now_s += (ready_s - before_work) * _ratio(wanted[name] - before_wanted, seen_s - before_seen)
        before_wanted, before_seen, before_work = wanted[name], seen_s, ready_s
        tensors += [dataclasses.replace(tensor, ready_s=now_s) for tensor in bulk]
    rest = max(0.0, work.backward_s - before_work)
    seen_rest = run.backward_end_s - run.forward_end_s - before_seen
    backward_s = now_s + rest * _ratio(target.backward_s - before_wanted, seen_rest)
    update_s = work.update_s * _ratio(tail_s, _tail_s(work, run))
    return dataclasses.replace(
        work, tensors=tuple(tensors), forward_s=forward_s, backward_s=backward_s, update_s=update_s
    )


def _ratio(wanted: float, seen: float) -> float:
    if wanted <= 0.0 or seen <= 0.0 or not math.isfinite(wanted / seen):
        return 1.0
    return float(min(4.0, max(0.25, wanted / seen)) ** _PART_OF_THE_WAY)


def replay_prediction(trace: Trace, calibration: Calibration | None = None) -> Prediction:
    """Play a recorded trace's own workload at its own settings and predict its step time.

    Without a `calibration` one is made from the trace itself.
    """
    from .fitting import calibrate

    fitted = calibration or calibrate(trace)
    return predict(recorded_scenario(trace, fitted))
