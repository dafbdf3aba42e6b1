"""The trial of `tune --live-replay`: a traced live replay in place of the user's script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..tracer.trace import Trace
from .live import WARM_UP_STEPS, replay_live
from .subject import live_subject


def live_trial(source: str, command: Sequence[str]) -> Callable[[Path, int], Trace]:
    """A trial that plays `source` (a trace's folder or a catalogue network's name) in the ranks of `command`.

    Compute is slept: the hosts' cores are as idle as those of a GPU's host. Raises UserError for a source that is neither.
    """
    subject = live_subject(source, compute="sleep")

    def trial(folder: Path, steps: int) -> Trace:
        wrapper = [sys.executable, "-m", "vsketchdlc", "trace", "--quiet", "-o", str(folder), "--"]
        count = max(steps + 1, WARM_UP_STEPS + 1)
        replay_live(subject.workload, command, steps=count, script=True, wrapper=wrapper)
        return Trace.open(folder)

    return trial
