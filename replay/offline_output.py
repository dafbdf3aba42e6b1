"""The offline replay's answer: tables by kind, gradient or step, and JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from ..units import format_bytes, format_seconds
from .by import By
from .offline import Replay

ROWS = 40


def as_json(result: Replay) -> dict[str, Any]:
    """The answer for programs."""
    return {
        "format_version": 1,
        "recorded_step_s": result.recorded_step_s,
        "replayed_step_s": result.prediction.step_s,
        "low_s": result.prediction.low_s,
        "high_s": result.prediction.high_s,
        "aux": result.prediction.aux,
        "same_settings": result.same_settings,
        "error": result.error if result.same_settings else None,
        "phases": [vars(phase) for phase in result.phases],
        "tensors": [
            {name: None if value != value else value for name, value in row.items()}
            for row in result.tensors.to_dict("records")
        ],
        "recorded_steps_s": [float(seconds) for seconds in result.steps["seconds"]],
        "filled": result.filled,
    }


def show(result: Replay, by: By, console: Console) -> None:
    """Print what was filled in, the table, and the step's sentence."""
    for line in result.filled:
        console.print(f"Filled in: {line}")
    console.print({By.KIND: _kinds, By.TENSOR: _tensors, By.STEP: _steps}[by](result))
    recorded = "-" if result.recorded_step_s is None else format_seconds(result.recorded_step_s)
    step = f"Step: recorded {recorded}, replayed {format_seconds(result.prediction.step_s)}"
    if result.recorded_step_s is None:
        step += ": the trace shows no step's time to compare with"
    elif result.same_settings and result.error is not None:
        step += f" ({100 * result.error:+.1f} %)"
    else:
        gain = result.recorded_step_s / result.prediction.step_s
        step += f" with {result.prediction.aux} lanes and the settings asked for ({gain:.2f} x)"
    console.print(step)


def _kinds(result: Replay) -> Table:
    table = Table(
        "kind", "recorded a step", "replayed a step", "difference", title="Seconds of a rank per step"
    )
    for phase in result.phases:
        table.add_row(phase.kind, *_compared(phase.recorded_s, phase.replayed_s))
    return table


def _tensors(result: Replay) -> Table:
    table = Table(
        "gradient",
        "size",
        "recorded",
        "replayed",
        "difference",
        title="From ready to reduced, the longest first",
    )
    rows = result.tensors.sort_values("seconds_replayed", ascending=False).to_dict("records")
    for row in rows[:ROWS]:
        size = (
            row["bytes_recorded"] if row["bytes_recorded"] == row["bytes_recorded"] else row["bytes_replayed"]
        )
        compared = _compared(row["seconds_recorded"], row["seconds_replayed"])
        table.add_row(str(row["tensor"]), format_bytes(size) if size == size else "-", *compared)
    if len(rows) > ROWS:
        table.caption = f"{len(rows) - ROWS} more are in --json"
    return table


def _steps(result: Replay) -> Table:
    table = Table("step", "recorded", "replayed", "difference", title="Steps of the slowest rank")
    replayed_s = result.prediction.step_s
    for row in result.steps.to_dict("records"):
        table.add_row(str(int(row["step"])), *_compared(row["seconds"], replayed_s))
    low, high = format_seconds(result.prediction.p5_s), format_seconds(result.prediction.p95_s)
    table.caption = f"single steps are expected from {low} to {high}"
    return table


def _compared(recorded: float | None, replayed: float | None) -> tuple[str, str, str]:
    known = [None if value is None or value != value else float(value) for value in (recorded, replayed)]
    texts = ["-" if value is None else format_seconds(value) for value in known]
    if known[0] is None or known[1] is None or known[0] == 0:
        return texts[0], texts[1], "-"
    return texts[0], texts[1], f"{100 * (known[1] / known[0] - 1):+.1f} %"
