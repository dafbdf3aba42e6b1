"""The chain of waits that made each step as long as it was, from recorded stamps alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from .steps import COLLECTIVES, steady
from .stragglers import common_clock

if TYPE_CHECKING:
    from ..trace import Trace

_ENDS = """
with whole as (
    select rank, step, min(t_start_ns) filter (kind = 'forward') as begin_ns,
        max(t_end_ns) filter (kind = 'forward') as forward_ns, max(t_end_ns) filter (kind = 'backward') as backward_ns,
        max(t_end_ns) filter (kind = 'update') as update_ns,
        max(t_end_ns) filter (kind in ('done', 'kv_push', 'kv_pull')) as done_ns,
        arg_max(bucket, t_end_ns) filter (kind = 'done') as bucket
    from events where step >= 0 and rank is not null and kind in ('forward', 'backward', 'update', 'done', 'kv_push', 'kv_pull')
    group by rank, step
)
select *, lead(begin_ns) over w as end_ns from whole
window w as (partition by rank order by step) qualify lead(step) over w = step + 1 and backward_ns is not null
order by rank, step
"""

_BUCKETS = f"""
with calls as (
    select rank, step, bucket, any_value(kind) as kind, min(t_start_ns) as start_ns, max(t_end_ns) as end_ns
    from events where step >= 0 and bucket is not null and rank is not null and kind in {COLLECTIVES} group by rank, step, bucket
), queued as (
    select step, bucket, rank, max(t_start_ns) as queued_ns, arg_max(coalesce(layer, tensor), t_start_ns) as layer
    from events where kind = 'negotiate' and tensor is not null and step >= 0 group by step, bucket, rank
)
select c.*, q.queued_ns, q.layer from calls c left join queued q using (step, bucket, rank)
"""

_REQUESTS = """
with trips as (
    select rank, step, flow, bucket, tensor, any_value(coalesce(layer, tensor)) as layer, min(t_start_ns) as start_ns,
        max(t_end_ns) as end_ns
    from events where kind in ('kv_push', 'kv_pull') and step >= 0 group by all
), queues as (select flow, bucket, tensor, max(t_end_ns - t_start_ns) as queue_ns from events where kind = 'kv_queue' group by all)
select t.*, q.queue_ns from trips t left join queues q using (flow, bucket, tensor)
qualify row_number() over (partition by rank, step order by end_ns desc) = 1
"""


@dataclass(frozen=True)
class _Part:
    rank: int
    kind: str
    name: str
    start_ns: int
    end_ns: int


@dataclass
class _Path:
    """Parts of one step, collected from its end to its begin; each new part ends where the last one began."""

    at_ns: int
    parts: list[_Part] = field(default_factory=list)

    def back_to(self, rank: int, kind: str, name: str, start_ns: float) -> None:
        start = min(int(start_ns), self.at_ns)
        if start < self.at_ns:
            self.parts.append(_Part(rank, kind, name, start, self.at_ns))
            self.at_ns = start


def critical_path(trace: Trace) -> pd.DataFrame:
    """One row a part of the way through each whole step: step, place, rank, kind, name, seconds, t_start_ns, t_end_ns.

    The way is walked from the step's end, on the rank whose step was longest, to what it last waited for:

    1. `other` from the last weight written until the next step, `update` until the weights are written;
    2. `copy` from the last collective until the last gradient is there;
    3. `transfer` of that collective's bucket since all ranks are in it; where this rank waited in it for another one,
       the way goes on at the rank that came last (clocks must be comparable);
    4. before it either the bucket before, which had Horovod's thread, or `negotiate`: from its last gradient's entry
       into Horovod's queue, on the rank where that was last, until its start;
    5. `backward` up to that gradient's layer, and `forward`.

    With parameter servers 2 to 4 are the request that was answered last: `transfer` and `server`. The parts of a step
    add up to it.
    """
    ends = trace.query(_ENDS)
    columns = ["step", "place", "rank", "kind", "name", "seconds", "t_start_ns", "t_end_ns"]
    if not len(ends):
        return pd.DataFrame(columns=columns)
    walk = _Walk(trace, ends)
    slowest = ends.loc[(ends["end_ns"] - ends["begin_ns"]).groupby(ends["step"]).idxmax()]
    rows: list[tuple[Any, ...]] = []
    for step, rank in sorted(zip(slowest["step"].tolist(), slowest["rank"].tolist(), strict=True)):
        parts = walk.of(int(step), int(rank))
        rows += [
            (
                step,
                place,
                part.rank,
                part.kind,
                part.name,
                (part.end_ns - part.start_ns) / 1e9,
                part.start_ns,
                part.end_ns,
            )
            for place, part in enumerate(reversed(parts))
        ]
    return pd.DataFrame(rows, columns=columns)


def critical_parts(trace: Trace) -> pd.DataFrame:
    """One row a kind of `critical_path`: seconds of it in a step and its share, over the steps after the first.

    `seconds` are means (they add up to a step); `often` is the rank and the bucket or layer that it most often was.
    """
    table = steady(trace.critical_path())
    if not len(table):
        return pd.DataFrame(columns=["kind", "seconds", "share", "often"])
    table["often"] = [f"rank {rank} {name}" for rank, name in zip(table["rank"], table["name"], strict=True)]
    grouped = table.groupby("kind", sort=False)
    answer = grouped["seconds"].sum().div(table["step"].nunique()).to_frame()
    answer["share"] = answer["seconds"] / answer["seconds"].sum()
    answer["often"] = grouped["often"].agg(lambda names: names.mode().iloc[0].strip())
    return answer.reset_index().sort_values("seconds", ascending=False, ignore_index=True)


class _Walk:
    """Walks steps backwards through what the trace says of them."""

    def __init__(self, trace: Trace, ends: pd.DataFrame) -> None:
        self.ends = _by(ends, "step", "rank")
        self.requests = _by(trace.query(_REQUESTS), "step", "rank")
        buckets = trace.query(_BUCKETS)
        self.buckets = _by(buckets, "step", "bucket", "rank")
        self.last: dict[tuple[Any, ...], Any] = {}
        self.queued: dict[tuple[Any, ...], Any] = {}
        if len(buckets) and common_clock(trace):
            grouped = buckets.groupby(["step", "bucket"])
            self.last = _by(buckets.loc[grouped["start_ns"].idxmax()], "step", "bucket")
            known = buckets.dropna(subset=["queued_ns"])
            self.queued = _by(
                known.loc[known.groupby(["step", "bucket"])["queued_ns"].idxmax()], "step", "bucket"
            )

    def of(self, step: int, rank: int) -> list[_Part]:
        """Parts of `step`, the last one first."""
        end = self.ends[step, rank]
        path = _Path(int(end.end_ns))
        reached = [stamp for stamp in (end.update_ns, end.done_ns, end.backward_ns) if not pd.isna(stamp)]
        path.back_to(rank, "other", "", max(reached))
        waited = max(stamp for stamp in (end.done_ns, end.backward_ns) if not pd.isna(stamp))
        path.back_to(rank, "update", "", waited)
        layer = ""
        if (step, rank) in self.requests and waited > end.backward_ns:
            layer = self._request(path, self.requests[step, rank], rank)
        elif not pd.isna(end.bucket) and waited > end.backward_ns:
            rank, layer = self._collectives(path, step, int(end.bucket), rank)
        path.back_to(rank, "communication", "", end.backward_ns) if layer == "" else None
        here = self.ends.get((step, rank), end)
        path.back_to(rank, "backward", layer, here.forward_ns)
        path.back_to(rank, "forward", "", end.begin_ns)
        return path.parts

    def _request(self, path: _Path, trip: Any, rank: int) -> str:
        queue_ns = 0 if pd.isna(trip.queue_ns) else int(trip.queue_ns)
        middle = int(trip.start_ns) + max(0, int(trip.end_ns) - int(trip.start_ns) - queue_ns)
        path.back_to(rank, "server", trip.layer, middle)
        path.back_to(rank, "transfer", trip.layer, trip.start_ns)
        return str(trip.layer)

    def _collectives(self, path: _Path, step: int, bucket: int, rank: int) -> tuple[int, str]:
        """Back through the buckets that followed one another; returns the rank and layer that the first waited for."""
        kind = "copy"
        while True:
            call = self.buckets.get((step, bucket, rank))
            if call is None:
                return rank, ""
            name = f"bucket {bucket}"
            path.back_to(rank, kind, name, call.end_ns)
            last = self.last.get((step, bucket))
            if last is not None and last.rank != rank and call.start_ns < last.start_ns < call.end_ns:
                path.back_to(rank, "transfer", name, last.start_ns)
                rank, call = int(last.rank), last
            path.back_to(rank, "transfer", name, call.start_ns)
            queued = self.queued.get((step, bucket), call)
            before = self.buckets.get((step, bucket - 1, rank))
            if before is not None and (pd.isna(queued.queued_ns) or before.end_ns > queued.queued_ns):
                bucket, kind = bucket - 1, "queue"
                continue
            if pd.isna(queued.queued_ns):
                return rank, ""
            path.back_to(rank, "negotiate", name, queued.queued_ns)
            return int(queued.rank), str(queued.layer)


def _by(table: pd.DataFrame, *keys: str) -> dict[tuple[Any, ...], Any]:
    """Rows of `table` by the values of `keys`."""
    return {tuple(int(getattr(row, key)) for key in keys): row for row in table.itertuples(index=False)}
