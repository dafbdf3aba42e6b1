"""Residuals of a calibration by kind of event, and its parameters' intervals, as a page."""

from __future__ import annotations

import html

import plotly.graph_objects as go

from .calibration import Calibration


def residual_page(calibration: Calibration) -> str:
    """One page, no network needed: relative errors of the fit by source, parameters against their intervals."""
    errors = go.Figure()
    for source, values in calibration.residuals.items():
        errors.add_box(y=[100 * value for value in values], name=source, boxpoints="all", jitter=0.4)
    errors.update_layout(title="What the fit misses", yaxis_title="model over measured, %", showlegend=False)
    names = list(calibration.entries)
    entries = [calibration.entries[name] for name in names]
    spread = go.Figure(
        go.Scatter(
            x=names,
            y=[0.0] * len(names),
            mode="markers",
            marker={"color": ["#2a7" if entry.identified else "#bbb" for entry in entries], "size": 9},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [100 * (entry.high / entry.value - 1) for entry in entries],
                "arrayminus": [100 * (1 - entry.low / entry.value) for entry in entries],
            },
        )
    )
    spread.update_layout(title="90 % intervals (grey: a prior stands in)", yaxis_title="around the value, %")
    plots = errors.to_html(full_html=False, include_plotlyjs=True) + spread.to_html(
        full_html=False, include_plotlyjs=False
    )
    sentences = [*([calibration.disturbed] if calibration.disturbed else []), *calibration.notes]
    notes = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Calibration</title></head>"
        f"<body style='font-family:sans-serif'><h1>Calibration</h1>{plots}<ul>{notes}</ul></body></html>\n"
    )
