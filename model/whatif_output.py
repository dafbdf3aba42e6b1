"""How a what-if answers: a table a setting, JSON, CSV, a page with plots; or the way to a scaling target."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .. import answer
from ..errors import UserError
from ..units import format_bits_per_s, format_bytes, format_seconds
from .axes import Setting
from .critical import critical_path, in_words
from .target import answer_target, parse_target
from .whatif import Answer, Grid

FORMAT_VERSION = 1
# Columns of the table of --best: those that vary, and some always.
_CELLS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "model": ("model", str),
    "hosts": ("hosts", str),
    "ranks_per_host": ("ranks", str),
    "nic_bits_per_s": ("NIC", format_bits_per_s),
    "flow_cap_bits_per_s": ("flow cap", lambda cap: "none" if cap is None else format_bits_per_s(cap)),
    "rtt_s": ("round trip", format_seconds),
    "oversubscription": ("oversubscribed", lambda value: f"{value:g}:1"),
    "cores": ("cores", lambda value: f"{value:g}"),
    "core_speed": ("speed", lambda value: f"{value:g}"),
    "batch": ("batch", str),
    "fusion_bytes": ("fusion", format_bytes),
    "cycle_s": ("cycle", format_seconds),
    "fp16": ("fp16", lambda value: "yes" if value else "no"),
    "aux": ("aux", str),
    "step_s": ("step", format_seconds),
    "samples_per_s": ("samples/s", lambda value: f"{value:.4g}"),
}
_ALWAYS = {"hosts", "nic_bits_per_s", "flow_cap_bits_per_s", "aux", "step_s", "samples_per_s"}
_AXES = {
    "aux": "aux",
    "hosts": "hosts",
    "ranks-per-host": "ranks_per_host",
    "nic": "nic_bits_per_s",
    "flow-cap": "flow_cap_bits_per_s",
    "rtt": "rtt_s",
    "cores": "cores",
    "core-speed": "core_speed",
    "batch": "batch",
    "fusion-mb": "fusion_bytes",
    "cycle-ms": "cycle_s",
    "oversubscription": "oversubscription",
    "fp16": "fp16",
}


@dataclass(frozen=True)
class Wanted:
    """Where the answer goes and what is added to it."""

    json_target: str | None = None
    csv: Path | None = None
    html: Path | None = None
    best: str | None = None
    price: float | None = None
    epoch: int = 0
    quiet: bool = False


def show(grid: Grid, answers: Sequence[Answer], wanted: Wanted) -> None:
    """Write the files that are wanted and print the tables."""
    best = None if wanted.best is None else best_rows(grid, answers, wanted)
    written = []
    if wanted.json_target is not None:
        result: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "workload": grid.workload.name,
            "source": grid.workload.source,
            "disturbed": grid.calibration.disturbed,
            "settings": [one.to_json(wanted.price, wanted.epoch) for one in answers],
        }
        if best is not None:
            result["best"] = best
        answer.write_json(wanted.json_target, result)
        written.append(wanted.json_target)
    if wanted.csv:
        rows = [
            {**one.setting.to_json(), **row}
            for one in answers
            for row in one.rows(wanted.price, wanted.epoch)
        ]
        answer.write_text_whole(wanted.csv, _as_csv(rows))
        written.append(str(wanted.csv))
    if wanted.html:
        from .plots import page

        answer.write_text_whole(wanted.html, page(f"What if: {grid.workload.name}", answers))
        written.append(str(wanted.html))
    if wanted.quiet or wanted.json_target == "-":
        return
    _print_headlines(grid)
    if best is not None:
        _print_best(best)
    else:
        for one in answers:
            _print_answer(one, wanted)
    if written:
        answer.stdout.print(f"written: {', '.join(written)}")


def show_target(grid: Grid, text: str, wanted: Wanted) -> None:
    """Answer ``--target`` for every setting."""
    target = parse_target(text)
    answers = [
        (
            setting,
            answer_target(grid.workload_of(setting), grid.calibration, setting, grid.aux, target),
        )
        for setting in grid.settings
    ]
    if wanted.json_target is not None:
        data = [{**setting.to_json(), **one.to_json()} for setting, one in answers]
        answer.write_json(wanted.json_target, {"format_version": FORMAT_VERSION, "targets": data})
    if not wanted.quiet and wanted.json_target != "-":
        _print_headlines(grid)
        for setting, one in answers:
            answer.stdout.print(f"{_place(setting)}: {one.sentence}")


def best_rows(grid: Grid, answers: Sequence[Answer], wanted: Wanted) -> list[dict[str, Any]]:
    """The best value of one axis for every combination of the others.

    The shortest step wins; where the axis changes how much is trained in a step, the highest throughput.
    """
    axis = _AXES.get(str(wanted.best))
    if axis is None:
        raise UserError(f"--best {wanted.best}: choose one of {', '.join(_AXES)}")
    rows = [
        {**one.setting.to_json(), **row} for one in answers for row in one.rows(wanted.price, wanted.epoch)
    ]
    if axis == "aux":
        chosen = {id(one): one.choice.aux for one in answers}
        return [
            {**one.setting.to_json(), **row}
            for one in answers
            for row in one.rows(wanted.price, wanted.epoch)
            if row["aux"] == chosen[id(one)]
        ]
    others = [name for name in [*Setting.__dataclass_fields__, "aux"] if name != axis]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in others), []).append(row)
    if axis in ("hosts", "ranks_per_host", "batch"):
        return [max(group, key=lambda row: float(row["samples_per_s"])) for group in groups.values()]
    return [min(group, key=lambda row: float(row["step_s"])) for group in groups.values()]


def _print_headlines(grid: Grid) -> None:
    for work in grid.others.values() if grid.others else [grid.workload]:
        size = format_bytes(work.gradient_bytes)
        answer.stdout.print(f"{work.name}: {size} of gradients a step ({work.source})")
    if grid.calibration.disturbed:
        answer.stdout.print(f"disturbed: {grid.calibration.disturbed}")


def _place(setting: Setting) -> str:
    words = (
        f"{setting.model + ': ' if setting.model else ''}{setting.hosts} host{'s' if setting.hosts != 1 else ''} x {setting.ranks_per_host}, {setting.cores:g} cores, "
        f"NIC {format_bits_per_s(setting.nic_bits_per_s)}, flow {format_bits_per_s(setting.flow_cap_bits_per_s)}"
    )
    if setting.core_speed != 1:
        words += f", core speed {setting.core_speed:g}"
    if setting.oversubscription > 1:
        words += f", {setting.oversubscription:g}:1 oversubscribed"
    if setting.fp16:
        words += ", gradients as fp16"
    return words


def _print_answer(one: Answer, wanted: Wanted) -> None:
    table = Table(title=_place(one.setting), title_justify="left", box=None, padding=(0, 2, 0, 0))
    columns = ["aux", "step", "median 90 %", "steps 5-95 %", "gain", "samples/s", "limit"]
    if wanted.price is not None:
        columns.insert(-1, "epoch")
    least = {"gain": 6, "limit": 10, "epoch": 6}
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True, min_width=least.get(column))
    rows = one.rows(wanted.price, wanted.epoch)
    for row in rows:
        cells = [
            f"{row['aux']}{' *' if row['aux'] == one.choice.aux else ''}",
            format_seconds(row["step_s"]),
            f"{row['low_s']:.3g}-{row['high_s']:.3g} s",
            f"{row['p5_s']:.3g}-{row['p95_s']:.3g} s",
            "" if row["speedup"] is None else f"{row['speedup']:.2f}x",
            f"{row['samples_per_s']:.4g}",
            row["limited_by"].replace("_", " "),
        ]
        if wanted.price is not None:
            cells.insert(-1, f"{row['epoch_cost']:.2f}")
        table.add_row(*cells)
    answer.stdout.print(table)
    answer.stdout.print(f"choice: {one.choice.aux} - {one.choice.reason}")
    answer.stdout.print(f"why: {one.bottleneck}")
    path = critical_path(one.chosen.scenario, one.chosen.run)
    answer.stdout.print(f"critical path with {one.chosen.aux} lanes: {in_words(path)}\n")


def _print_best(rows: Sequence[dict[str, Any]]) -> None:
    shown = [name for name in _CELLS if name in _ALWAYS or len({str(row[name]) for row in rows}) > 1]
    table = Table()
    for name in shown:
        table.add_column(_CELLS[name][0], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_CELLS[name][1](row[name]) for name in shown))
    answer.stdout.print(table)


def _as_csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
