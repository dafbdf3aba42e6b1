"""What each rank of a live replay runs: real Horovod allreduces of the recorded gradients, at recorded times.

Compute is slept, burnt by threads, or pushed into MXNet's engine. Everything between Horovod's queue and the wire is
the real thing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .busy_threads import BusyThreads, Piece, Sleep, nothing
from .engine_compute import EngineCompute
from .live_plan import PLAN_VARIABLE, LivePlan
from .marks import StepMarks


def main() -> None:
    """Run the plan in VSKETCHDLC_REPLAY_PLAN; rank 0 writes the seconds of each step."""
    text = os.environ.get(PLAN_VARIABLE)
    if not text:
        sys.exit("vsketchdlc: this program is started by 'vsketchdlc replay --live', not by hand")
    plan = LivePlan.from_text(text)
    import horovod.mxnet as hvd
    import mxnet as mx

    hvd.init()
    arrays = [mx.nd.zeros((tensor.elements,), dtype=tensor.dtype) for tensor in plan.tensors]
    mx.nd.waitall()
    if plan.compute == "mxnet":
        engine = EngineCompute(mx)
        seconds = [_engine_step(hvd, mx, plan, arrays, engine) for _ in range(plan.steps)]
    else:
        compute = BusyThreads(plan.threads) if plan.compute == "spin" else Sleep()
        marks = StepMarks(plan.tensors)
        seconds = [_step(hvd, plan, arrays, compute, marks) for _ in range(plan.steps)]
        marks.begin()  # a step ends where the next one begins
        marks.forward_end()
    if hvd.rank() == 0:
        data = {"ranks": hvd.size(), "local_ranks": hvd.local_size(), "step_s": seconds}
        Path(plan.result).write_text(json.dumps(data), encoding="utf-8")
    hvd.shutdown()


def _step(
    hvd: Any, plan: LivePlan, arrays: list[Any], compute: BusyThreads | Sleep, marks: StepMarks
) -> float:
    start_s = time.perf_counter()
    marks.begin()
    compute.run(_pieces(hvd, plan, arrays, marks))
    marks.update_call()
    for group, seconds in plan.updates:
        for position in group:
            arrays[position].wait_to_read()
        compute.run([(seconds, nothing)])
    marks.update_end()
    compute.run([(plan.overhead_s, nothing)])
    return time.perf_counter() - start_s


def _pieces(hvd: Any, plan: LivePlan, arrays: list[Any], marks: StepMarks) -> list[Piece]:
    """Forward and backward, and the gradients that are handed over on the way."""

    def hand_over(position: int) -> Callable[[], None]:
        name = plan.tensors[position].name
        return lambda: hvd.allreduce_(arrays[position], average=False, name=name, priority=-position)

    pieces: list[Piece] = [(plan.forward_s, marks.forward_end)]
    done_s = 0.0
    for position, tensor in enumerate(plan.tensors):
        pieces.append((max(0.0, tensor.ready_s - done_s), hand_over(position)))
        done_s = max(done_s, tensor.ready_s)
    return [*pieces, (max(0.0, plan.backward_s - done_s), marks.backward_end)]


def _engine_step(hvd: Any, mx: Any, plan: LivePlan, arrays: list[Any], engine: EngineCompute) -> float:
    """The step as a training script makes it: push everything, then wait."""
    start_s = time.perf_counter()
    state = engine.after(engine.state(0), plan.forward_s)
    done_s = 0.0
    for position, tensor in enumerate(plan.tensors):
        state = engine.after(state, max(0.0, tensor.ready_s - done_s))
        done_s = max(done_s, tensor.ready_s)
        engine.write(arrays[position], state)
    engine.after(state, max(0.0, plan.backward_s - done_s))
    for position, tensor in enumerate(plan.tensors):
        hvd.allreduce_(arrays[position], average=False, name=tensor.name, priority=-position)
    for group, seconds in plan.updates:
        engine.after(engine.when_reduced([arrays[position] for position in group]), seconds)
    mx.nd.waitall()
    time.sleep(plan.overhead_s)
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
