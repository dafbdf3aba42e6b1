"""What each rank does in a lane probe: real Horovod allreduces of a few sizes, at a few lane counts.

Runs instead of the user's script, in the ranks that the user's own launch command starts (the start-up hook
calls `main`), so hosts, interfaces and Open MPI settings are the user's. Lane counts alternate within each
round: a drift of the machine hits all of them alike. Rank 0 writes the rows; every decision that shapes the
sequence of collectives is made from values that are equal on all ranks.
"""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .lane_switch import LaneSwitch, lanes_cpu_s

PLAN_VARIABLE = "FASTHVD_PROBE"
LEAST_ROUNDS = 2  # a single value does not show how much it scatters
LEAST_SIZES = 2  # short allreduces alone say nothing of the network's rate


@dataclass(frozen=True)
class ProbePlan:
    """Lane counts to visit (0 is stock), sizes in bytes, rounds, and the time after which rounds stop."""

    aux: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    rounds: int
    budget_s: float
    result: str

    def to_json(self) -> str:
        """As the ranks get it in their environment."""
        return json.dumps(
            [self.aux, self.sizes_bytes, self.rounds, self.budget_s, self.result], separators=(",", ":")
        )

    @classmethod
    def from_json(cls, text: str) -> ProbePlan:
        """Read what `to_json` wrote."""
        aux, sizes, rounds, budget, result = json.loads(text)
        return cls(tuple(aux), tuple(sizes), rounds, budget, result)


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def main() -> None:
    """Run the plan in FASTHVD_PROBE to its end; rank 0 writes the result file."""
    plan = ProbePlan.from_json(os.environ[PLAN_VARIABLE])
    import horovod.mxnet as hvd
    import mxnet as mx

    hvd.init()
    lanes = LaneSwitch()
    usable = [count for count in plan.aux if count <= lanes.total()]
    clock = _SharedClock(hvd, mx)
    arrays = {size: mx.nd.ones((size // 4,), dtype="float32") for size in plan.sizes_bytes}
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    sizes = _warm_up(hvd, mx, lanes, clock, plan, usable, arrays)
    round_s = 0.0
    for number in range(plan.rounds):
        begin_s = clock.spent_s()
        if number >= LEAST_ROUNDS and begin_s + round_s > plan.budget_s:
            break
        for size in sizes:
            for count in usable:
                lanes.use(count)
                _note(rows, count, size, _one(hvd, mx, arrays[size], f"probe.{size}"))
        round_s = clock.spent_s() - begin_s
    lanes.use(0)
    hosts = _count_hosts(hvd, mx)
    if hvd.rank() == 0:
        data = {
            "hosts": hosts,
            "ranks": hvd.size(),
            "started_lanes": lanes.total(),
            "rows": list(rows.values()),
        }
        Path(plan.result).write_text(json.dumps(data), encoding="utf-8")
    hvd.shutdown()


class _SharedClock:
    """Seconds since its making, the mean over ranks: equal on all of them, so all decide alike."""

    def __init__(self, hvd: Any, mx: Any) -> None:
        self._hvd, self._mx, self._start = hvd, mx, time.monotonic()

    def spent_s(self) -> float:
        own = self._mx.nd.array([time.monotonic() - self._start])
        return float(self._hvd.allreduce(own, name="probe.spent").asscalar())


def _warm_up(
    hvd: Any,
    mx: Any,
    lanes: LaneSwitch,
    clock: _SharedClock,
    plan: ProbePlan,
    usable: list[int],
    arrays: dict[int, Any],
) -> list[int]:
    """Connect sockets and touch pages, smallest size first; the sizes that fit the budget come back.

    From the third on, a size is left out when its warm-up and one round of it would not fit, judged by the one before.
    """
    fitting: list[int] = []
    took_s = 0.0
    for size in sorted(plan.sizes_bytes):
        begin_s = clock.spent_s()
        if len(fitting) >= LEAST_SIZES and begin_s + 2 * took_s * size / fitting[-1] > plan.budget_s:
            break
        for count in usable:
            lanes.use(count)
            _one(hvd, mx, arrays[size], f"probe.{size}")
        fitting.append(size)
        took_s = clock.spent_s() - begin_s
    return fitting


def _one(hvd: Any, mx: Any, array: Any, name: str) -> tuple[float, float, float]:
    array[:] = 1
    ready = hvd.allreduce(mx.nd.zeros((1,)), name="probe.ready")  # all ranks start together
    ready.wait_to_read()
    rank_cpu, lane_cpu, start = _cpu_s(), lanes_cpu_s(), time.perf_counter()
    hvd.allreduce_(array, average=False, name=name)
    array.wait_to_read()
    seconds = time.perf_counter() - start
    return seconds, _cpu_s() - rank_cpu, lanes_cpu_s() - lane_cpu


def _note(
    rows: dict[tuple[int, int], dict[str, Any]], count: int, size: int, sample: tuple[float, float, float]
) -> None:
    row = rows.setdefault(
        (count, size), {"aux": count, "bytes": size, "seconds": [], "rank_cpu_s": [], "lane_cpu_s": []}
    )
    for key, value in zip(("seconds", "rank_cpu_s", "lane_cpu_s"), sample, strict=True):
        row[key].append(value)


def _count_hosts(hvd: Any, mx: Any) -> int:
    """Hosts of the job: the sum over ranks of 1 / ranks on its host."""
    share = mx.nd.array([1.0 / hvd.local_size()])
    return round(float(hvd.allreduce(share, average=False, name="probe.hosts").asscalar()))
