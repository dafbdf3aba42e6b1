"""Play a recorded run again on the wire: real Horovod on real hosts, without the model, its data or a GPU.

So lane counts can be tried on a cluster before the GPUs are rented. Compute is a sleep of the recorded time
(where the network is the limit) or busy threads (where the cores are).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..errors import UserError
from ..fasthvd.instead import instead_of_the_script
from ..model.workload import Workload
from ..tracer.launcher import RankEnvironment, prepare, run
from ..tracer.trace import Trace
from .live_plan import PLAN_VARIABLE, LivePlan, ReplayTensor

WARM_UP_STEPS = 2
WORKER = "vsketchdlc.replay.live_worker"
HOROVOD_PREFIX = "horovod_allreduce."
"""Horovod puts it before a name it is given: without it a replay's gradients are called as the recorded ones."""
_BUSY_CORES = 0.2
DTYPE_BYTES = {"float32": 4, "float64": 8, "float16": 2, "uint8": 1, "int8": 1, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class LiveReplay:
    """The outcome: ranks that ran, lanes a host, seconds of every step (warm-up included)."""

    ranks: int
    aux: int
    all_step_s: list[float]

    @property
    def step_s(self) -> float:
        """Median step time after the warm-up, s."""
        return median(self.all_step_s[WARM_UP_STEPS:])


def live_plan(workload: Workload, *, steps: int, compute: str, result: str, threads: int = 1) -> LivePlan:
    """The plan that drives Horovod as `workload` does.

    Raises UserError for a gradient type that MXNet's arrays do not have.
    """
    tensors = []
    for tensor in workload.tensors:
        if tensor.dtype not in DTYPE_BYTES:
            raise UserError(
                f"gradient {tensor.name} is of type {tensor.dtype}; live replay has {', '.join(DTYPE_BYTES)}"
            )
        elements = max(1, tensor.bytes // DTYPE_BYTES[tensor.dtype])
        name = tensor.name.removeprefix(HOROVOD_PREFIX)
        tensors.append(ReplayTensor(name, elements, tensor.dtype, tensor.ready_s))
    return LivePlan(
        tuple(tensors),
        _updates(workload),
        workload.forward_s,
        workload.backward_s,
        workload.overhead_s,
        steps,
        compute,
        result,
        threads,
    )


def _updates(workload: Workload) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Optimizer groups (neighbours in the sorted parameter list) in the order their last gradient is reduced."""
    order = workload.fusion_order
    by_index = sorted(range(len(workload.tensors)), key=lambda position: workload.tensors[position].index)
    size = max(1, workload.update_group)
    groups = [by_index[first : first + size] for first in range(0, len(by_index), size)]
    groups.sort(key=lambda group: max(order[workload.tensors[position].name] for position in group))
    total = workload.gradient_bytes
    return tuple(
        (tuple(group), workload.update_s * sum(workload.tensors[p].bytes for p in group) / total)
        for group in groups
    )


def replay_live(
    workload: Workload,
    launcher: Sequence[str],
    *,
    aux: int = 0,
    steps: int = 12,
    compute: str = "sleep",
    threads: int = 1,
    script: bool = False,
    wrapper: Sequence[str] = (),
) -> LiveReplay:
    """Drive Horovod with `workload` on the hosts that `launcher` (``mpirun -np N -H ...``) names.

    `threads` is the number of busy threads with ``spin``. With `script` the launcher ends with the user's own
    script, which is not started. `wrapper` are words to put in front, such as those of ``vsketchdlc trace``.
    Raises UserError when the ranks did not finish; what they said is on stderr.
    """
    if steps <= WARM_UP_STEPS:
        raise UserError(
            f"--steps is {steps}; a live replay needs more than its {WARM_UP_STEPS} warm-up steps"
        )
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-replay-") as folder:
        result = Path(folder) / "steps.json"
        plan = live_plan(workload, steps=steps, compute=compute, result=str(result), threads=threads)
        variables = {PLAN_VARIABLE: plan.to_text()}
        words = [*wrapper, sys.executable, "-m", "vsketchdlc", "run", "--aux", str(aux), "--", *launcher]
        if script:
            ranks = instead_of_the_script(WORKER, variables)
        else:
            words += [sys.executable, "-m", WORKER]
            ranks = RankEnvironment(variables=variables)
        status = run(prepare(words, ranks, os.environ), stdout=sys.stderr)
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if status != 0 or not result.exists():
            raise UserError(
                f"the live replay ended with status {status} and no result: look at the ranks' own messages above; "
                "the command after '--' is the launcher and its options only, without a program"
            )
        data = json.loads(result.read_text(encoding="utf-8"))
    return LiveReplay(data["ranks"], aux, data["step_s"])


def busy_threads(trace: Trace) -> int:
    """Compute threads that were busy beside Horovod's in the recorded run: OMP's number, else what the samples show."""
    environment = trace.meta.settings.get("environment") or {}
    told = str(environment.get("OMP_NUM_THREADS", ""))
    if told.isdigit() and int(told) > 0:
        return int(told)
    cores = trace.cores()
    threads = cores[~cores["subject"].isin(["process", "host", "horovod", "python"])]
    busy = threads[threads["user_cores"] > _BUSY_CORES].groupby("rank").size()
    return max(1, int(busy.median()) if len(busy) else 1)


def scaled(workload: Workload, factor: float) -> Workload:
    """`workload` with every gradient `factor` times as large; the optimizer takes as much longer.

    Raises UserError when `factor` is not above 0.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise UserError(f"--scale is {factor:g}; it must be a finite number above 0")
    tensors = tuple(
        dataclasses.replace(tensor, bytes=max(_element_bytes(tensor.dtype), round(tensor.bytes * factor)))
        for tensor in workload.tensors
    )
    return dataclasses.replace(workload, tensors=tensors, update_s=workload.update_s * factor)


def _element_bytes(dtype: str) -> int:
    return DTYPE_BYTES.get(dtype, 1)
