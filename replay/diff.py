"""Recorded and replayed in one picture: a Chrome/Perfetto file and an HTML page, one step of each from time 0.

The recorded step is the one nearest to the median step time. Both are written as one trace whose hosts are named
``recorded ...`` and ``replayed ...``, so the exports of every trace serve.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ..answer import write_text_whole
from ..errors import UserError
from ..tracer.exports.chrome import export_chrome
from ..tracer.schema import EVENTS
from ..tracer.trace import HostInfo, Trace, TraceMeta, write_trace
from ..units import format_seconds
from .offline import Replay

_PROCESS = 1 << 40
_COLOURS = {
    "forward": "#4c78a8",
    "backward": "#72b7b2",
    "update": "#f2cf5b",
    "allreduce": "#e45756",
    "fuse_in": "#f58518",
    "fuse_out": "#ff9da6",
    "lane_local_sum": "#b279a2",
    "lane_reduce_scatter": "#e45756",
    "lane_allgather": "#9d755d",
}
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: .5em 0; } .note { color: #666; }
td, th { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
"""


def write_diff(result: Replay, recorded: Trace, replayed: Trace, base: Path) -> list[Path]:
    """Write ``base.json`` (Chrome, Perfetto) and ``base.html``; their paths. Raises UserError as `whole_file` does."""
    both = {"recorded": _one_step(recorded), "replayed": _one_step(replayed)}
    files = [base.with_name(base.name + ending) for ending in (".json", ".html")]
    with tempfile.TemporaryDirectory() as scratch:
        joined = write_trace(Path(scratch) / "both", *_joined(both, recorded.meta, replayed.meta))
        export_chrome(joined, files[0])
    write_text_whole(files[1], _page(result, both, recorded.path.name))
    return files


def _one_step(trace: Trace) -> pd.DataFrame:
    """Events of one whole step, the one nearest to the median, from time 0; the densest one without whole steps."""
    times = trace.step_times()
    if times.empty:
        rows = trace.query(
            "select step from events where step >= 0 group by step order by count(*) desc limit 1"
        )
        step = int(rows["step"][0]) if len(rows) else None
    else:
        seconds = (times["t_end_ns"] - times["t_start_ns"]).groupby(times["step"]).max()
        later = seconds[seconds.index > seconds.index.min()] if len(seconds) > 1 else seconds
        step = int(str((later - later.median()).abs().idxmin()))
    where = "true" if step is None else f"step = {step}"
    # Calls of single sockets would bury everything else.
    events = trace.query(f"select * from events where {where} and kind not in ('socket_send', 'socket_recv')")
    if events.empty:
        raise UserError(f"{trace.path} has no event to draw")
    begin = int(events["t_start_ns"].min())
    forward = events[events["kind"] == "forward"]
    if not forward.empty:
        begin = int(forward["t_start_ns"].min())
    return events.assign(t_start_ns=events["t_start_ns"] - begin, t_end_ns=events["t_end_ns"] - begin, step=0)


def _joined(both: dict[str, pd.DataFrame], *metas: TraceMeta) -> tuple[TraceMeta, pd.DataFrame]:
    frames, hosts = [], []
    ranks = 0
    for number, ((word, events), meta) in enumerate(zip(both.items(), metas, strict=True)):
        first = ranks
        names = [host.name for host in meta.hosts] or sorted(set(events["host"].dropna()))
        hosts += [
            HostInfo(f"{word} {name}", ranks=[rank + first for rank in _ranks_on(events, name)])
            for name in names
        ]
        ranks += max(meta.ranks, 1)
        shifted = events.assign(
            host=(f"{word} " + events["host"].astype("string")),
            process=events["process"] + number * _PROCESS,
            rank=events["rank"] + first,
        )
        frames.append(shifted[[name for name in EVENTS.names if name in shifted.columns]])
    meta = dataclasses.replace(metas[0], source="simulated", hosts=hosts, ranks=ranks, missing_ranks=[])
    return meta, pd.concat(frames, ignore_index=True)


def _ranks_on(events: pd.DataFrame, host: str) -> list[int]:
    there = events[events["host"] == host]["rank"].dropna()
    return sorted({int(rank) for rank in there})


def _page(result: Replay, both: dict[str, pd.DataFrame], name: str) -> str:
    recorded = "-" if result.recorded_step_s is None else format_seconds(result.recorded_step_s)
    error = "" if result.error is None else f" ({100 * result.error:+.1f} %)"
    told = f"Step: recorded {recorded}, replayed {format_seconds(result.prediction.step_s)}{error}."
    if not result.same_settings:
        told += " The settings differ from the recorded ones."
    kinds = _table(
        ("kind", "recorded", "replayed", "difference"),
        [(p.kind, *_pair(p.recorded_s, p.replayed_s)) for p in result.phases],
    )
    tensors = _table(
        ("gradient, from ready to reduced", "recorded", "replayed", "difference"),
        [
            (str(row["tensor"]), *_pair(row["seconds_recorded"], row["seconds_replayed"]))
            for row in result.tensors.to_dict("records")
        ],
    )
    filled = "".join(f'<p class="note">Filled in: {escape(line)}.</p>' for line in result.filled)
    title = escape(f"{name}: recorded and replayed")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><h1>{title}</h1><p>{escape(told)}</p>{filled}"
        f"<h2>One step of the first rank and its lanes</h2>{_bars(both)}"
        f"<h2>Seconds of a rank per step</h2>{kinds}<h2>Gradients</h2>{tensors}</body></html>\n"
    )


def _bars(both: dict[str, pd.DataFrame]) -> str:
    """One bar an event of a kind with a colour, recorded above replayed on a common axis."""
    figure = go.Figure()
    shown: set[str] = set()
    for word, events in both.items():
        ranks = events["rank"].dropna()
        mine = events[(events["rank"] == ranks.min()) | events["rank"].isna()] if len(ranks) else events
        for kind, colour in _COLOURS.items():
            chosen = mine[mine["kind"] == kind]
            if chosen.empty:
                continue
            rows = [
                f"{word}: {'communication' if kind not in ('forward', 'backward', 'update') else 'compute'}"
            ]
            figure.add_bar(
                orientation="h",
                name=kind,
                legendgroup=kind,
                showlegend=kind not in shown,
                y=rows * len(chosen),
                base=(chosen["t_start_ns"] * 1e-6).tolist(),
                x=((chosen["t_end_ns"] - chosen["t_start_ns"]) * 1e-6).tolist(),
                marker_color=colour,
            )
            shown.add(kind)
    figure.update_layout(barmode="overlay", height=320, xaxis_title="ms", margin={"t": 10, "b": 40})
    figure.update_yaxes(autorange="reversed")
    text: str = figure.to_html(full_html=False, include_plotlyjs=False)
    return text


def _pair(recorded: float | None, replayed: float | None) -> tuple[str, str, str]:
    there = [value is not None and value == value for value in (recorded, replayed)]
    texts = [
        format_seconds(float(value)) if known and value is not None else "-"
        for known, value in zip(there, (recorded, replayed), strict=True)
    ]
    if not all(there) or not recorded or replayed is None:
        return texts[0], texts[1], "-"
    return texts[0], texts[1], f"{100 * (replayed / recorded - 1):+.1f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
