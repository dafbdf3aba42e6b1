"""The report of a trace: one structure for programs, and its text for the terminal."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..units import format_bits_per_s, format_bytes, format_seconds
from .analysis.critical import critical_parts
from .analysis.steps import steady
from .analysis.stragglers import common_clock
from .trace import Trace

PARTS = (
    ("forward_s", "forward"),
    ("backward_s", "backward"),
    ("exposed_s", "exposed communication"),
    ("update_s", "update"),
    ("other_s", "other (script, data, idle)"),
)

TOP_FLOWS = 16
_USE = ("user_cores", "system_cores", "waiting_cores", "host_busy_cores")


def report(trace: Trace, flow_cap_bits_per_s: float | None = None) -> dict[str, Any]:
    """Everything the report says, as JSON-ready values; times in s, sizes in bytes.

    With `flow_cap_bits_per_s` each flow has a `cap_share`: its rate while busy against what one flow may have.
    """
    breakdown = trace.step_breakdown()
    calm = steady(breakdown)
    exposed = steady(trace.exposed_communication())
    return {
        "format_version": 1,
        "trace": str(trace.path),
        "command": trace.meta.command,
        "hosts": [host.name for host in trace.meta.hosts],
        "ranks": trace.meta.ranks,
        "missing_ranks": trace.meta.missing_ranks,
        "lost_events": trace.meta.lost_events,
        "notes": trace.meta.notes,
        "steps": int(calm["step"].nunique()),
        "median": _medians(calm),
        "overlap": _number(exposed["overlap"].dropna().median())
        if exposed["overlap"].notna().any()
        else None,
        "verdict": trace.verdict(),
        "critical_path": _records(critical_parts(trace)),
        "by_step": _records(breakdown),
        "by_rank": _records(_by_rank(calm, trace)),
        "layers": _records(trace.layers()),
        "tensors": _records(trace.tensors()),
        "flows": _records(_flows(trace, flow_cap_bits_per_s)),
        "cores": _records(trace.cores()),
        "kvstore": _records(trace.kvstore()),
    }


def _flows(trace: Trace, cap: float | None) -> pd.DataFrame:
    table = trace.flows()
    if cap is not None:
        table.insert(list(table.columns).index("bits_per_s") + 1, "cap_share", table["bits_per_s"] / cap)
    return table


def _medians(table: pd.DataFrame) -> dict[str, float | None]:
    names = [name for name in table.columns if name.endswith("_s")] + ["bytes", "buckets"]
    return {name: _number(table[name].median()) for name in names}


def _by_rank(calm: pd.DataFrame, trace: Trace) -> pd.DataFrame:
    names = ["step_s", "forward_s", "backward_s", "exposed_s", "update_s", "other_s"]
    table = calm.groupby("rank", as_index=False)[names].median()
    return table.merge(trace.stragglers(), on="rank", how="left")


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): _number(value) for key, value in row.items()} for row in table.to_dict("records")]


def _number(value: Any) -> Any:
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value.item() if hasattr(value, "item") else value


def print_report(content: dict[str, Any], trace: Trace, console: Console, by: str = "time") -> None:
    """The report as text; `by` is time, step, layer, tensor, flow or rank."""
    console.print(
        f"{content['ranks']} ranks on {len(content['hosts'])} hosts, {len(trace.meta.tensors)} gradients of "
        f"{format_bytes(sum(info.bytes for info in trace.meta.tensors))}, {content['steps']} whole steps "
        f"(the first is left out)"
    )
    if by == "time":
        _print_time(content, console)
        _print_tensors(content, console)
    elif by == "step":
        _print_rows(content["by_step"], console, "step by step", ("rank", "step"))
    elif by == "rank":
        _print_rows(content["by_rank"], console, "rank by rank (medians)", ("rank", "calls"))
    elif by == "flow":
        _print_flows(content["flows"], console)
        used = [row for row in content["cores"] if any((row[name] or 0) >= 0.005 for name in _USE)]
        _print_rows(used, console, "Cores in use (medians)", ("rank", "host", "subject"))
    elif by == "layer":
        _print_rows(
            content["layers"], console, "layer by layer, in the order of becoming ready (medians)", ("layer",)
        )
    else:
        rows = [_named(row) for row in content["tensors"]]
        _print_rows(rows, console, "gradients in the order of becoming ready (medians)", ("gradient",))
    if not common_clock(trace):
        console.print("The hosts share no clock in this trace: who was last is not known.")
    for note in content["notes"]:
        console.print(f"Note: {note}.")
    console.print(content["verdict"])


def _print_time(content: dict[str, Any], console: Console) -> None:
    middle = content["median"]
    if middle["step_s"] is None:
        return
    table = _table("Where a step's time goes", "part of a step", "median", "share")
    for name, label in PARTS:
        table.add_row(label, format_seconds(middle[name]), f"{middle[name] / middle['step_s']:.0%}")
    table.add_row("step", format_seconds(middle["step_s"]), "100%", style="bold")
    _show(table, console)
    path = _table(
        "What the steps waited for, one after the other (critical path, means)",
        "part",
        "time",
        "share",
        "most often",
    )
    for row in content["critical_path"]:
        path.add_row(row["kind"], format_seconds(row["seconds"]), f"{row['share']:.0%}", row["often"])
    _show(path, console)
    if not middle["buckets"]:
        return
    beside = _table("Beside it", "", "median")
    beside.add_row("inside collectives", format_seconds(middle["collective_s"]))
    beside.add_row("  of that hidden behind backward", format_seconds(middle["overlapped_s"]))
    beside.add_row("copies into and out of the fusion buffer", format_seconds(middle["copy_s"]))
    waits = [row["waited_per_step_s"] for row in content["by_rank"] if row["waited_per_step_s"] is not None]
    if waits:
        beside.add_row("waiting for the last rank, worst rank", format_seconds(max(waits)))
    beside.add_row("reduced", f"{format_bytes(middle['bytes'])} in {middle['buckets']:.0f} collectives")
    _show(beside, console)


def _print_tensors(content: dict[str, Any], console: Console, top: int = 10) -> None:
    rows = sorted(content["tensors"], key=lambda row: -(row["total_s"] or 0.0))[:top]
    if content["kvstore"]:
        rows_of_requests = [_named({**row, "times": None}) for row in content["kvstore"][:top]]
        title = "The requests to the parameter servers that take longest (medians)"
        _print_rows(rows_of_requests, console, title, ("gradient", "kind"))
    if rows:
        title = f"The {len(rows)} gradients that take longest from ready to done (medians)"
        _print_rows([_named(row) for row in rows], console, title, ("gradient",))


def _print_flows(flows: list[dict[str, Any]], console: Console) -> None:
    """The flows that carry nearly all bytes; a job has dozens of connections for its set-up."""
    everything = sum(row["bytes"] for row in flows)
    shown, carried = 0, 0
    while shown < min(len(flows), TOP_FLOWS) and carried < 0.999 * everything:
        carried += flows[shown]["bytes"]
        shown += 1
    _print_rows(
        [_flow(row) for row in flows[:shown]], console, "TCP flows, the largest first", ("flow", "owner")
    )
    if shown < len(flows):
        rest = format_bytes(everything - carried)
        console.print(f"{len(flows) - shown} smaller flows carried {rest} together; --json lists them.\n")


def _flow(row: dict[str, Any]) -> dict[str, Any]:
    """A flow's row without what only programs need."""
    left_out = ("sends", "receives", "messages", "delay_min_s", "window_segments")
    return {key: value for key, value in row.items() if key not in left_out}


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """A tensor's row with one name: its parameter's, or Horovod's."""
    left_out = ("tensor", "parameter", "layer", "times")
    name = row["parameter"] or row["tensor"]
    return {"gradient": name, **{key: value for key, value in row.items() if key not in left_out}}


def _print_rows(rows: list[dict[str, Any]], console: Console, title: str, keys: tuple[str, ...]) -> None:
    if not rows:
        console.print(f"{title}: nothing recorded")
        return
    names = [name for name in rows[0] if name not in keys]
    table = _table(title, *keys, *(_heading(name) for name in names))
    for row in rows:
        table.add_row(
            *("-" if row[key] is None else str(row[key]) for key in keys),
            *(_shown(name, row[name]) for name in names),
        )
    _show(table, console)


def _table(title: str, first: str, *rest: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in rest:
        table.add_column(name, justify="right")
    return table


def _show(table: Table, console: Console) -> None:
    if not console.is_terminal:  # a file or a pipe has no width: do not cut the table at 80 columns
        console.width = max(console.width, 240)
        for column in table.columns:
            column.no_wrap = True
    console.print(table)


def _heading(name: str) -> str:
    special = {"bits_per_s": "rate", "delivery_bits_per_s": "delivery rate"}
    return special.get(name) or name.removesuffix("_s").replace("_", " ")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_per_s"):
        return format_bits_per_s(value)
    if name.endswith("_s"):
        return format_seconds(value)
    if name == "bytes":
        return format_bytes(value)
    if name.endswith("_cores"):
        return f"{value:.2f}"
    if isinstance(value, float) and value == round(value):
        return str(round(value))
    return f"{value:.0%}" if name.endswith("share") else str(value)
