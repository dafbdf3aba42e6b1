"""Commands in a lab, with what voids a run: two big flows that share one per-flow cap, which no real network does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from .lab import Collision, Lab


def run_on_h0(
    lab: Lab, command: Sequence[str], *, output: IO[Any] | int, timeout_s: float | None = None
) -> tuple[int, list[Collision]]:
    """Run `command` on h0 with its streams to `output`; its exit status, and the collisions of its flows.

    Raises subprocess.TimeoutExpired, when the command and all it started has been killed.
    """
    lab.forget_flows()
    done = lab.run("h0", list(command), stdout=output, stderr=output, timeout=timeout_s)
    return int(done.returncode), lab.collisions()
