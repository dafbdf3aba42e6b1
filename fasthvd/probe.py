"""Measure what lanes and stock Horovod deliver between the user's own hosts, in a few seconds.

The user's launch command is started as it is, with its ranks running `probe_worker` in place of the script.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ..errors import UserError
from ..model.probe import LaneProbe, ProbeRow
from ..tracer.launcher import prepare
from . import probe_worker
from .instead import instead_of_the_script, run_bounded
from .probe_worker import PLAN_VARIABLE, ProbePlan

SIZES_BYTES = (256 << 10, 4 << 20, 32 << 20)
# Time for the ranks to import MXNet, start lanes and connect, on top of the probe's own budget.
START_UP_S = 120.0


def lane_counts(most: int) -> tuple[int, ...]:
    """Counts worth visiting up to `most`: 0, 1, 2, 4, ... and `most` itself."""
    return tuple(sorted({0, most, *(2**power for power in range(most.bit_length()) if 2**power <= most)}))


def probe_lanes(command: Sequence[str], *, most: int, rounds: int = 4, budget_s: float = 20.0) -> LaneProbe:
    """Probe 0 to `most` lanes a host with the launch `command`; rows of seconds and CPU seconds an allreduce.

    Raises UserError when the ranks did not finish; what they said is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-probe-") as folder:
        result = Path(folder) / "probe.json"
        plan = ProbePlan(lane_counts(most), SIZES_BYTES, rounds, budget_s, str(result))
        ranks = instead_of_the_script(probe_worker.__name__, {PLAN_VARIABLE: plan.to_json()})
        words = [sys.executable, "-m", "vsketchdlc", "run", "--aux", str(most), "--", *command]
        launch = prepare(words, ranks, os.environ)
        limit_s = START_UP_S + 2 * budget_s
        status = run_bounded(launch.command, launch.environment, limit_s, "the lane probe")
        if status != 0 or not result.exists():
            raise UserError(
                f"the lane probe ended with status {status} and no result: look at the ranks' own messages above, "
                "then try 'vsketchdlc run --aux 1 --' before the same command"
            )
        return _as_probe(json.loads(result.read_text(encoding="utf-8")))


def _as_probe(data: dict[str, Any]) -> LaneProbe:
    rows = [
        ProbeRow(
            row["aux"], row["bytes"], row["seconds"], median(row["rank_cpu_s"]), median(row["lane_cpu_s"])
        )
        for row in data["rows"]
    ]
    return LaneProbe(
        data["hosts"], data["ranks"] // data["hosts"], rows, {"started_lanes": data["started_lanes"]}
    )
