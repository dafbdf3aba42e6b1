"""How a what-if answers: a table a setting, JSON, CSV, a page with plots; or the way to a scaling target."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
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
from .workload import Workload

FORMAT_VERSION = 1
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
    answer.stdout.print(_headline(grid.workload))
    if grid.calibration.disturbed:
        answer.stdout.print(f"disturbed: {grid.calibration.disturbed}")
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
        (setting, answer_target(grid.workload, grid.calibration, setting, grid.aux, target))
        for setting in grid.settings
    ]
    if wanted.json_target is not None:
        data = [{**setting.to_json(), **one.to_json()} for setting, one in answers]
        answer.write_json(wanted.json_target, {"format_version": FORMAT_VERSION, "targets": data})
    if not wanted.quiet and wanted.json_target != "-":
        answer.stdout.print(_headline(grid.workload))
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


def _headline(work: Workload) -> str:
    return f"{work.name}: {format_bytes(work.gradient_bytes)} of gradients a step ({work.source})"


def _place(setting: Setting) -> str:
    words = (
        f"{setting.hosts} host{'s' if setting.hosts != 1 else ''} x {setting.ranks_per_host}, {setting.cores:g} cores, "
        f"NIC {format_bits_per_s(setting.nic_bits_per_s)}, flow {format_bits_per_s(setting.flow_cap_bits_per_s)}"
    )
    if setting.core_speed != 1:
        words += f", core speed {setting.core_speed:g}"
    if setting.oversubscription > 1:
        words += f", {setting.oversubscription:g}:1 oversubscribed"
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
    table = Table()
    for column in ("hosts", "NIC", "flow cap", "cores", "batch", "aux", "step", "samples/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        cap = row["flow_cap_bits_per_s"]
        table.add_row(
            str(row["hosts"]),
            format_bits_per_s(row["nic_bits_per_s"]),
            "none" if cap is None else format_bits_per_s(cap),
            f"{row['cores']:g}",
            str(row["batch"]),
            str(row["aux"]),
            format_seconds(row["step_s"]),
            f"{row['samples_per_s']:.4g}",
        )
    answer.stdout.print(table)


def _as_csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
