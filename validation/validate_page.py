"""The page of a suite, ``report.html``: predicted against measured, self-contained, works offline."""

from __future__ import annotations

import html
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ..units import format_seconds
from .page_style import STYLE
from .scores import CaseScore, Check, Point, Score
from .wording import check_value, headline, lab_limits, lanes

_COLOURS = ("#1f6f8b", "#d1495b", "#66a182", "#edae49", "#6a4c93", "#8d6b4f")


def validate_page(score: Score) -> str:
    """The page as HTML text."""
    cases = "".join(_case(case) for case in score.cases)
    limits = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in lab_limits(score))
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>vsketchdlc validate</title>
<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>
<h1>{html.escape(headline(score))}</h1>
<p>Real MXNet, Horovod, Open MPI and TCP between emulated hosts. Every prediction was written down before the first of
its runs, from calibration runs of their own. An error is (predicted - measured) / measured of the median step time.</p>
{_checks(score.checks())}
{_missing(score)}
<h2>Predicted against measured</h2>{_scatter(score)}
<h2>Error by scenario</h2>{_errors(score)}
<h2>Scenario by scenario</h2>{cases}
<h2>What the lab cannot show</h2><ul class="limits">{limits}</ul>
</body></html>
"""


def _checks(checks: list[Check]) -> str:
    rows = "".join(
        f'<tr class="{"good" if check.reached else "bad"}"><td class="text">{html.escape(check.what)}</td>'
        f"<td>{check_value(check)}</td><td>{html.escape(check.target)}</td>"
        f"<td>{'reached' if check.reached else 'missed'}</td></tr>"
        for check in checks
    )
    return (
        f'<table><tr><th class="text">target</th><th>value</th><th>must be</th><th></th></tr>{rows}</table>'
    )


def _missing(score: Score) -> str:
    if not score.missing:
        return ""
    return f'<p class="bad">Not run yet: {html.escape(", ".join(score.missing))}.</p>'


def _scatter(score: Score) -> str:
    figure = go.Figure()
    names = list(dict.fromkeys(case.case.training.network for case in score.cases))
    for number, name in enumerate(names):
        chosen = [
            (case, p) for case in score.cases if case.case.training.network == name for p in case.points
        ]
        figure.add_scatter(
            x=[point.measured.step_s for _, point in chosen],
            y=[point.step_s for _, point in chosen],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [point.high_s - point.step_s for _, point in chosen],
                "arrayminus": [point.step_s - point.low_s for _, point in chosen],
                "thickness": 1,
            },
            mode="markers",
            name=name,
            text=[f"{case.case.name}, {lanes(point.aux)}" for case, point in chosen],
            hovertemplate="%{text}<br>measured %{x:.3f} s<br>predicted %{y:.3f} s<extra></extra>",
            marker={
                "size": 9,
                "color": _COLOURS[number % len(_COLOURS)],
                "symbol": ["circle" if point.relied_on else "circle-open" for _, point in chosen],
            },
        )
    times = [point.measured.step_s for point in score.points] or [0.1, 1.0]
    ends = [0.8 * min(times), 1.25 * max(times)]
    lines: list[tuple[float, str, str]] = [
        (1.0, "exact", "solid"),
        (1.1, "+10 %", "dot"),
        (1 / 1.1, "-10 %", "dot"),
    ]
    for factor, name, dash in lines:
        figure.add_scatter(
            x=ends,
            y=[factor * end for end in ends],
            mode="lines",
            name=name,
            line={"color": "#999", "dash": dash, "width": 1},
        )
    _lay_out(
        figure, xaxis_title="measured step time (s)", yaxis_title="predicted step time (s), 90 % interval"
    )
    figure.update_layout(xaxis_type="log", yaxis_type="log", height=520)
    return _html(figure)


def _errors(score: Score) -> str:
    figure = go.Figure()
    counts = sorted({point.aux for point in score.points})
    names = [case.case.name for case in score.cases]
    for number, aux in enumerate(counts):
        chosen = [
            (case.case.name, point) for case in score.cases for point in case.points if point.aux == aux
        ]
        figure.add_scatter(
            x=[name for name, _ in chosen],
            y=[100 * point.error for _, point in chosen],
            mode="markers",
            name=lanes(aux),
            marker={
                "size": 10,
                "color": _COLOURS[number % len(_COLOURS)],
                "symbol": ["circle" if point.relied_on else "circle-open" for _, point in chosen],
            },
        )
    for bound in (-10, 10):
        figure.add_hline(y=bound, line={"color": "#999", "dash": "dot", "width": 1})
    _lay_out(figure, yaxis_title="error (%)")
    figure.update_xaxes(categoryorder="array", categoryarray=names, tickangle=-30 if len(names) > 3 else 0)
    figure.update_layout(height=460)
    return _html(figure) + '<p class="limits">Hollow: something disturbed the runs; shown, not judged.</p>'


def _case(score: CaseScore) -> str:
    case = score.case
    elsewhere = "another host count or network than" if case.elsewhere else "the same hosts and network as"
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in score.notes)
    check = ""
    if score.stock_s is not None:
        stock = score.points[0].measured.step_s
        check = (
            f"<p>Stock Horovod with nothing preloaded took {format_seconds(score.stock_s)}; "
            f"with the lanes loaded and unused {format_seconds(stock)} ({100 * (stock / score.stock_s - 1):+.1f} %).</p>"
        )
    head = ("lanes", "predicted", "90 % interval", "measured", "error", "in interval", "steps", "spread")
    rows = "".join(_row(point, point.aux == score.chosen_aux) for point in score.points)
    return f"""<h3>{html.escape(case.name)}</h3>
<p>{html.escape(case.training.describe())}; {html.escape(case.place.describe())}. Predicted from calibration
'{html.escape(case.calibration.name)}', {elsewhere} there. Chosen: {lanes(score.chosen_aux)} (regret {100 * score.regret:.1f} %).
{html.escape(score.reason)}.</p>
<table><tr>{"".join(f"<th>{text}</th>" for text in head)}</tr>{rows}</table>{check}<ul class="limits">{notes}</ul>"""


def _row(point: Point, chosen: bool) -> str:
    cells = (
        str(point.aux),
        format_seconds(point.step_s),
        f"{format_seconds(point.low_s)} to {format_seconds(point.high_s)}",
        format_seconds(point.measured.step_s),
        f"{100 * point.error:+.1f} %",
        "yes" if point.covered else "no",
        str(point.measured.steps),
        f"{100 * point.measured.spread:.0f} %",
    )
    mark = ' class="chosen"' if chosen else ""
    return f"<tr{mark}>{''.join(f'<td>{text}</td>' for text in cells)}</tr>"


def _lay_out(figure: go.Figure, **titles: Any) -> None:
    figure.update_layout(
        template="plotly_white",
        legend={"orientation": "h", "y": 1.12},
        margin={"t": 50, "b": 60},
        **titles,
    )


def _html(figure: go.Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False))
