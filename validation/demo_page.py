"""The demo's ``report.html``: one self-contained page that works offline."""

from __future__ import annotations

import html

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ..units import format_seconds
from .demo import DemoResult
from .page_style import STYLE


def demo_page(result: DemoResult, breakdown: str) -> str:
    """The page as HTML text; `breakdown` is the tracer's text report of the stock run."""
    limits = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in result.limits)
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>vsketchdlc demo</title>
<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>
<h1>AlexNet over two hosts: {result.speedup:.2f} times faster with {result.chosen_aux} lanes</h1>
<p>{html.escape(result.lab)}. Real MXNet, Horovod, Open MPI and TCP. {html.escape(result.reason)}</p>
{_figure(result)}
{_table(result)}
<p>Speed-up over stock Horovod {result.speedup:.2f}; mean absolute error of the predictions
{100 * result.mean_abs_error:.1f} %; regret of the choice {100 * result.regret:.1f} %.</p>
<h2>Where a step's time went under stock Horovod</h2><pre>{html.escape(breakdown)}</pre>
<h2>What this place cannot show</h2><ul class="limits">{limits}</ul>
</body></html>
"""


def _figure(result: DemoResult) -> str:
    rows = result.predicted
    figure = go.Figure()
    figure.add_scatter(
        x=[row.aux for row in rows],
        y=[row.step_s for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row.high_s - row.step_s for row in rows],
            "arrayminus": [row.step_s - row.low_s for row in rows],
        },
        name="predicted, 90 % interval",
    )
    figure.add_scatter(
        x=[run.aux for run in result.measured],
        y=[run.step_s for run in result.measured],
        mode="markers",
        marker={"size": 12, "symbol": "x"},
        name=f"measured, median of {result.measured[0].steps} steps less warm-up",
    )
    figure.update_layout(
        xaxis_title="auxiliary processes (lanes) a host",
        yaxis_title="step time (s)",
        yaxis_rangemode="tozero",
        template="plotly_white",
        legend={"orientation": "h", "y": 1.1},
        height=420,
        margin={"t": 40},
    )
    return str(figure.to_html(full_html=False, include_plotlyjs=False))


def _table(result: DemoResult) -> str:
    cells = []
    stock = result.measured_at(0).step_s
    for run in result.measured:
        row = [
            str(run.aux),
            format_seconds(result.predicted[run.aux].step_s),
            format_seconds(run.step_s),
            f"{100 * result.error_at(run.aux):+.1f} %",
            f"{stock / run.step_s:.2f}",
        ]
        chosen = ' class="chosen"' if run.aux == result.chosen_aux else ""
        cells.append(f"<tr{chosen}>{''.join(f'<td>{text}</td>' for text in row)}</tr>")
    head = "".join(f"<th>{text}</th>" for text in ("lanes", "predicted", "measured", "error", "speed-up"))
    return f"<table><tr>{head}</tr>{''.join(cells)}</table>"
