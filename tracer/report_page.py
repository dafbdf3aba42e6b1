"""The report as one HTML file that needs nothing else: figures, tables, and the sentence that names the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ..units import format_bits_per_s, format_bytes, format_seconds
from .analysis.rates import flow_rates
from .report import PARTS
from .trace import Trace

COLOURS = {
    "forward_s": "#4c78a8",
    "backward_s": "#72b7b2",
    "exposed_s": "#e45756",
    "update_s": "#f2cf5b",
    "other_s": "#bab0ac",
}
WAITS = (
    ("ready_s", "until ready", "#dddddd"),
    ("negotiate_s", "until all ranks agreed", "#f2cf5b"),
    ("queue_s", "behind other buckets, copying in", "#f58518"),
    ("transfer_s", "its collective", "#4c78a8"),
)
TOP_LAYERS = 60

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin: 2em 0 .3em; }
.verdict { background: #fdf3e7; border-left: 5px solid #e45756; padding: .7em 1em; font-size: 1.1em; }
.note { color: #666; } table { border-collapse: collapse; margin: .5em 0; }
td, th { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd; } td:first-child, th:first-child { text-align: left; }
.wide { overflow-x: auto; }
"""


def report_page(content: dict[str, Any], trace: Trace, flow_cap_bits_per_s: float | None = None) -> str:
    """HTML text of the report `content` (of `report.report`); `flow_cap_bits_per_s` draws a line in the rates."""
    parts = [
        _head(content, trace),
        _section(
            "Where a step's time goes", _breakdown_table(content), _steps(content), _path_table(content)
        ),
        _section(
            "Layers: when a gradient is ready, what it waits for", _layers(content), _layer_table(content)
        ),
        _section("TCP flows", _rates(trace, flow_cap_bits_per_s), _flow_table(content)),
        _section("Ranks: who is late", _ranks(content), _rank_table(content)),
        _section("Cores", _core_table(content)),
    ]
    title = escape(f"vsketchdlc: {trace.path.name}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )


def _head(content: dict[str, Any], trace: Trace) -> str:
    size = format_bytes(sum(info.bytes for info in trace.meta.tensors))
    facts = (
        f"{content['ranks']} ranks on {len(content['hosts'])} hosts, {len(trace.meta.tensors)} gradients of {size}, "
        f"{content['steps']} whole steps (the first is left out)"
    )
    command = f"<p><code>{escape(' '.join(content['command']))}</code></p>" if content["command"] else ""
    notes = "".join(f'<p class="note">Note: {escape(note)}.</p>' for note in content["notes"])
    return (
        f"<h1>Where the time goes: {escape(trace.path.name)}</h1><p>{escape(facts)}</p>{command}"
        f'<p class="verdict">{escape(content["verdict"])}</p>{notes}'
    )


def _section(title: str, *parts: str) -> str:
    body = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _figure(figure: Any, height: int = 380) -> str:
    figure.update_layout(
        height=height,
        margin={"l": 60, "r": 20, "t": 20, "b": 45},
        template="plotly_white",
        legend={"orientation": "h", "y": 1.12},
    )
    html: str = figure.to_html(include_plotlyjs=False, full_html=False, config={"displaylogo": False})
    return html


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _s(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _breakdown_table(content: dict[str, Any]) -> str:
    middle = content["median"]
    if middle["step_s"] is None:
        return '<p class="note">No whole step was recorded.</p>'
    rows = [[label, _s(middle[name]), f"{middle[name] / middle['step_s']:.0%}"] for name, label in PARTS]
    rows.append(["step", _s(middle["step_s"]), "100%"])
    overlap = content["overlap"]
    hidden = "" if overlap is None else f"; backward hides {overlap:.0%} of the collectives' time"
    told = f"{format_bytes(middle['bytes'])} a step in {middle['buckets']:.0f} collectives of {_s(middle['collective_s'])}"
    return (
        _table(["part of a step", "median", "share"], rows) + f'<p class="note">{escape(told + hidden)}.</p>'
    )


def _path_table(content: dict[str, Any]) -> str:
    rows = [
        [row["kind"], _s(row["seconds"]), f"{row['share']:.0%}", row["often"]]
        for row in content["critical_path"]
    ]
    return _table(["part of the critical path", "mean", "share", "most often"], rows)


def _steps(content: dict[str, Any]) -> str:
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in content["by_step"]:
        by_step.setdefault(row["step"], []).append(row)
    if not by_step:
        return ""
    steps = sorted(by_step)
    figure = go.Figure()
    for name, label in PARTS:
        values = [1e3 * sum(row[name] for row in by_step[step]) / len(by_step[step]) for step in steps]
        figure.add_bar(x=steps, y=values, name=label, marker_color=COLOURS[name])
    figure.update_layout(barmode="stack", bargap=0.1, xaxis_title="step", yaxis_title="ms, mean over ranks")
    return _figure(figure)


def _layers(content: dict[str, Any]) -> str:
    rows = content["layers"][:TOP_LAYERS]
    if not rows:
        return ""
    figure = go.Figure()
    names = [row["layer"] for row in rows]
    for key, label, colour in WAITS:
        values = [1e3 * max(row[key] or 0.0, 0.0) for row in rows]
        figure.add_bar(y=names, x=values, name=label, orientation="h", marker_color=colour)
    figure.update_layout(
        barmode="stack",
        xaxis_title="ms after the start of backward (medians)",
        yaxis={"autorange": "reversed"},
    )
    return _figure(figure, 140 + 22 * len(rows))


def _layer_table(content: dict[str, Any]) -> str:
    times = ("ready_s", "negotiate_s", "queue_s", "transfer_s", "total_s", "done_s")
    rows = [
        [row["layer"], str(row["tensors"]), format_bytes(row["bytes"]), *(_s(row[name]) for name in times)]
        for row in content["layers"]
    ]
    return _table(["layer", "tensors", "bytes", *(name[:-2] for name in times)], rows)


def _rates(trace: Trace, cap: float | None) -> str:
    table = flow_rates(trace)
    if not len(table):
        return ""
    figure = go.Figure()
    for flow, part in table.groupby("flow", sort=False):
        figure.add_scatter(
            x=part["time_s"], y=part["bits_per_s"] / 1e9, name=str(flow), mode="lines", line_shape="hv"
        )
    if cap is not None:
        figure.add_hline(y=cap / 1e9, line_dash="dash", annotation_text=f"cap {format_bits_per_s(cap)}")
    figure.update_layout(xaxis_title="s", yaxis_title="Gbit/s of payload")
    return _figure(figure)


def _flow_table(content: dict[str, Any]) -> str:
    def rate(value: float | None) -> str:
        return "-" if value is None else format_bits_per_s(value)

    rows = [
        [
            row["flow"],
            row["owner"] or "-",
            " > ".join("-" if end is None else f"rank {end:.0f}" for end in (row["sender"], row["receiver"])),
            format_bytes(row["bytes"]),
            rate(row["bits_per_s"])
            + (f" ({row['cap_share']:.0%} of the cap)" if row.get("cap_share") else ""),
            _s(row["delay_s"]),
            _s(row["rtt_s"]),
            "-" if row["retransmits"] is None else f"{row['retransmits']:.0f}",
        ]
        for row in content["flows"]
    ]
    return _table(
        ["flow", "of", "ranks", "bytes", "rate while busy", "one-way delay", "rtt", "retransmits"], rows
    )


def _ranks(content: dict[str, Any]) -> str:
    rows = [row for row in content["by_rank"] if row.get("waited_per_step_s") is not None]
    if len(rows) < 2:
        return ""
    figure = go.Figure()
    names = [f"rank {row['rank']}" for row in rows]
    figure.add_bar(
        x=names, y=[1e3 * row["waited_per_step_s"] for row in rows], name="waits for others, ms a step"
    )
    figure.add_scatter(
        x=names,
        y=[100 * row["last_share"] for row in rows],
        name="is the last, % of collectives",
        yaxis="y2",
        mode="markers",
        marker={"size": 9, "color": COLOURS["exposed_s"]},
    )
    figure.update_layout(
        yaxis_title="ms", yaxis2={"title": "%", "overlaying": "y", "side": "right", "range": [0, 100]}
    )
    return _figure(figure, 320)


def _rank_table(content: dict[str, Any]) -> str:
    names = ("step_s", "forward_s", "backward_s", "exposed_s", "update_s", "other_s")
    rows = [
        [
            str(row["rank"]),
            *(_s(row[name]) for name in names),
            "-" if row.get("last_share") is None else f"{row['last_share']:.0%}",
            _s(row.get("waited_per_step_s")),
        ]
        for row in content["by_rank"]
    ]
    return _table(["rank", *(name[:-2] for name in names), "last", "waits a step"], rows)


def _core_table(content: dict[str, Any]) -> str:
    names = ("user_cores", "system_cores", "waiting_cores", "host_busy_cores")
    rows = [
        [
            f"{'-' if row['rank'] is None else row['rank']} {row['subject']}",
            row["host"],
            *("-" if row[name] is None else f"{row[name]:.2f}" for name in names),
        ]
        for row in content["cores"]
        if any((row[name] or 0.0) >= 0.005 for name in names)
    ]
    return _table(["rank and thread", "host", *(name[:-6].replace("_", " ") for name in names)], rows)
