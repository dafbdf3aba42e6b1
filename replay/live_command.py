"""``replay --live``: the launcher, the subject, and the answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import answer
from ..errors import UserError
from ..model.calibration import Calibration
from ..units import format_seconds
from .live import LiveReplay, replay_live, scaled
from .live_plan import COMPUTE_KINDS
from .subject import LiveSubject, live_subject


@dataclass(frozen=True)
class LiveWishes:
    """What the user asked of a live replay; None: as recorded."""

    source: str
    gpu: str
    aux: int | None
    scale: float
    calibration: Path | None
    compute: str
    threads: int | None
    steps: int
    hosts: str | None


def replay_on_the_wire(wishes: LiveWishes, launcher: Sequence[str], json_target: str | None) -> None:
    """Run it and print what came out. Raises UserError for wishes that do not fit together."""
    if wishes.compute not in COMPUTE_KINDS:
        raise UserError(f"--compute '{wishes.compute}' is not one of {', '.join(COMPUTE_KINDS)}")
    words = _launcher(wishes.hosts, launcher)
    fitted = None if wishes.calibration is None else Calibration.load(wishes.calibration)
    subject = live_subject(wishes.source, compute=wishes.compute, gpu=wishes.gpu, calibration=fitted)
    aux = subject.aux or 0 if wishes.aux is None else wishes.aux
    threads = wishes.threads or subject.threads
    workload = subject.workload if wishes.scale == 1.0 else scaled(subject.workload, wishes.scale)
    result = replay_live(
        workload, words, aux=aux, steps=wishes.steps, compute=wishes.compute, threads=threads
    )
    same = aux == subject.aux and result.ranks == subject.ranks and wishes.scale == 1.0
    if json_target is not None:
        answer.write_json(json_target, _as_json(subject, result, wishes.compute, threads, same))
    if json_target != "-":
        for line in subject.filled:
            answer.stdout.print(f"Filled in: {line}")
        answer.stdout.print(_sentence(subject, result, wishes.compute, threads, same))


def _launcher(hosts: str | None, launcher: Sequence[str]) -> list[str]:
    if hosts is None:
        if not launcher:
            raise UserError(
                "a live replay needs a launcher or --hosts: put it after '--', as in '-- mpirun -np 4 -H a,b,c,d'"
            )
        return list(launcher)
    if launcher:
        raise UserError("give --hosts or a launcher after '--', not both")
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    if not names:
        raise UserError(f"--hosts '{hosts}' names no host: write it like a,b,c")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--bind-to", "none", "-np", str(len(names)), "-H", ",".join(names)]


def _as_json(
    subject: LiveSubject, result: LiveReplay, compute: str, threads: int, same: bool
) -> dict[str, Any]:
    return {
        "format_version": 1,
        "recorded_step_s": subject.step_s,
        "replayed_step_s": result.step_s,
        "all_step_s": result.all_step_s,
        "ranks": result.ranks,
        "aux": result.aux,
        "compute": compute,
        "threads": threads if compute == "spin" else None,
        "same_settings": same,
        "error": result.step_s / subject.step_s - 1 if same and subject.step_s else None,
        "filled": subject.filled,
    }


def _sentence(subject: LiveSubject, result: LiveReplay, compute: str, threads: int, same: bool) -> str:
    line = f"Step: replayed live {format_seconds(result.step_s)} with {result.aux} lanes"
    if subject.step_s is not None:
        line += f", recorded {format_seconds(subject.step_s)}"
        ratio = result.step_s / subject.step_s
        line += f" ({100 * (ratio - 1):+.1f} %)" if same else f" ({1 / ratio:.2f} x)"
    what = f"spin of {threads} thread{'s' if threads > 1 else ''}" if compute == "spin" else compute
    return f"{line}; {result.ranks} ranks, compute is {what}"
