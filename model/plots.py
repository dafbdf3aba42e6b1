"""Answers of a what-if as one HTML page with plots that opens without a network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ..units import format_bits_per_s
from .axes import Setting
from .whatif import Answer

_SHOWN = 12
_LABELS = {
    "model": "model",
    "hosts": "hosts",
    "ranks_per_host": "ranks a host",
    "cores": "cores",
    "core_speed": "core speed",
    "nic_bits_per_s": "NIC",
    "flow_cap_bits_per_s": "flow cap",
    "rtt_s": "round trip, s",
    "oversubscription": "oversubscription",
    "batch": "batch",
    "fusion_bytes": "fusion threshold, B",
    "cycle_s": "cycle time, s",
    "fp16": "fp16",
}


def varying(settings: Sequence[Setting]) -> list[str]:
    """Names of the axes that have more than one value."""
    return [name for name in _LABELS if len({getattr(setting, name) for setting in settings}) > 1]


def label(setting: Setting, names: Sequence[str]) -> str:
    """A short name for a setting among others: the values that differ."""
    return (
        ", ".join(f"{_LABELS[name]} {shown(name, getattr(setting, name))}" for name in names)
        or "as calibrated"
    )


def shown(name: str, value: float | str) -> str:
    """A value with its unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_bits_per_s(value) if name.endswith("bits_per_s") else f"{value:g}"


def page(title: str, answers: Sequence[Answer]) -> str:
    """The page: step time over lanes with intervals, throughput over hosts, a heat map over two axes, the words."""
    names = varying([one.setting for one in answers])
    figures = [_over_lanes(answers, names)]
    if "hosts" in names:
        figures.append(_over_hosts(answers, names))
    if len(names) >= 2:
        figures.append(_heat_map(answers, names[0], names[1]))
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0, default_height="460px")
        for number, figure in enumerate(figures)
    ]
    words = "".join(
        f"<li><b>{html.escape(label(one.setting, names))}</b>: {one.choice.aux} lanes. {html.escape(one.choice.reason)}. "
        f"{html.escape(one.bottleneck)}.</li>"
        for one in answers[:200]
    )
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<style>body{font-family:sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{''.join(parts)}<h2>In words</h2><ul>{words}</ul></body></html>\n"
    )


def _over_lanes(answers: Sequence[Answer], names: Sequence[str]) -> Any:
    figure = go.Figure()
    for one in answers[:_SHOWN]:
        steps = [p.step_s for p in one.predictions]
        figure.add_scatter(
            x=[p.aux for p in one.predictions],
            y=steps,
            mode="lines+markers",
            name=label(one.setting, names),
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [p.high_s - p.step_s for p in one.predictions],
                "arrayminus": [p.step_s - p.low_s for p in one.predictions],
            },
        )
    left_out = len(answers) - _SHOWN
    more = f" (the first {_SHOWN} of {len(answers)} settings)" if left_out > 0 else ""
    figure.update_layout(
        title=f"Step time over lanes, 90 % interval of the median{more}",
        xaxis_title="lanes a host",
        yaxis_title="step time, s",
        yaxis_rangemode="tozero",
    )
    return figure


def _over_hosts(answers: Sequence[Answer], names: Sequence[str]) -> Any:
    figure = go.Figure()
    others = [name for name in names if name != "hosts"]
    groups: dict[str, list[Answer]] = {}
    for one in answers:
        groups.setdefault(label(one.setting, others), []).append(one)
    for name, group in list(groups.items())[:_SHOWN]:
        ordered = sorted(group, key=lambda one: one.setting.hosts)
        figure.add_scatter(
            x=[one.setting.hosts for one in ordered],
            y=[one.chosen.samples_per_s for one in ordered],
            mode="lines+markers",
            name=name,
        )
    figure.update_layout(
        title="Throughput over hosts, at the chosen lanes",
        xaxis_title="hosts",
        yaxis_title="samples a second",
        yaxis_rangemode="tozero",
    )
    return figure


def _heat_map(answers: Sequence[Answer], across: str, up: str) -> Any:
    columns = sorted({getattr(one.setting, across) for one in answers})
    rows = sorted({getattr(one.setting, up) for one in answers})
    best: dict[tuple[float, float], float] = {}
    for one in answers:
        place = (getattr(one.setting, across), getattr(one.setting, up))
        best[place] = min(best.get(place, float("inf")), one.chosen.step_s)
    figure = go.Figure(
        go.Heatmap(
            x=[shown(across, value) for value in columns],
            y=[shown(up, value) for value in rows],
            z=[[best.get((column, row)) for column in columns] for row in rows],
            colorbar={"title": "step, s"},
        )
    )
    figure.update_layout(
        title="Step time at the chosen lanes", xaxis_title=_LABELS[across], yaxis_title=_LABELS[up]
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category")
    return figure
