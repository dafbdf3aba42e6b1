"""The queries behind a picture: which rows are drawn, in which process and on which track.

Views, each on top of the one before: ``timeline`` (every event with its process, track and name) and ``drawn`` (the
selected ones); ``counted`` holds the samples. ``arrows.py`` adds the arrows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from ..schema import Kind
from ..trace import HostInfo

SOCKETS = (Kind.SOCKET_SEND, Kind.SOCKET_RECV)

WAITING = (
    Kind.READY,
    Kind.DONE,
    *SOCKETS,
    Kind.KV_PUSH,
    Kind.KV_PULL,
    Kind.KV_REQUEST,
    Kind.KV_QUEUE,
    Kind.KV_RESPONSE,
)
"""Many tensors are in these states at once: they get rows of their own and are never nested."""

NO_STEP = -2
"""Stands for a null step in joins; -1 is before the first step."""

COUNTERS = "select pid, name, t, value from counted order by pid, name, t"


@dataclass(frozen=True)
class Process:
    """One row group of a picture.

    ``pid`` is the rank, or from 100,000 up for lanes and servers; ``number`` is `process` of the trace's
    events; ``clock`` is its host with the clock's offset and drift.
    """

    pid: int
    name: str
    host: str | None
    rank: int | None
    number: int | None
    clock: HostInfo

    @property
    def os_pid(self) -> int | None:
        """The process number on its host (the trace has the host's number above bit 32)."""
        return None if self.number is None else self.number & 0xFFFF_FFFF

    @property
    def clock_offset_ns(self) -> int:
        """What is added to the host's stamps, beside the drift, to get reference time; 0 where unknown."""
        return self.clock.clock_offset_ns or 0


def define_timeline(
    connection: duckdb.DuckDBPyConnection,
    processes: Iterable[Process],
    parameters: Mapping[str, str],
) -> None:
    """Create ``timeline`` and ``counted_all`` for `processes`; events of other processes are not drawn.

    `parameters` gives the names that users know to tensors named by number (``horovod_allreduce.3``).
    """
    connection.execute(
        "create temp table processes (pid bigint, host varchar, rank int, number bigint, "
        "shift bigint, drift double, middle bigint)"
    )
    rows = [
        [p.pid, p.host, p.rank, p.number, p.clock_offset_ns, p.clock.clock_drift, p.clock.clock_middle_ns]
        for p in processes
    ]
    if rows:
        connection.executemany("insert into processes values (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.execute("create temp table parameters (tensor varchar, parameter varchar)")
    if parameters:
        connection.executemany(
            "insert into parameters values (?, ?)", [list(pair) for pair in parameters.items()]
        )
    connection.execute("create temp table kind_orders (kind varchar, kind_order int)")
    connection.executemany(
        "insert into kind_orders values (?, ?)", [[kind.value, i + 1] for i, kind in enumerate(Kind)]
    )
    connection.execute(
        f"""
        create temp view placed as
        select p.pid, coalesce(e.step, {NO_STEP}) as step_key, coalesce(k.kind_order, 99) as kind_order, e.*,
            coalesce(m.parameter, e.tensor, e.layer) as subject,
            e.kind in ({listed(WAITING)}) or (e.kind = '{Kind.NEGOTIATE}' and e.tensor is not null) as waiting
        from events e
        join processes p on e.rank is not distinct from p.rank and e.host is not distinct from p.host
            and e.process is not distinct from p.number
        left join kind_orders k on e.kind = k.kind
        left join parameters m on e.tensor = m.tensor
        where e.t_start_ns is not null
        """
    )
    connection.execute(
        """
        create temp view timeline as
        select pid, step_key, true as of_rank, 0 as kind_order, true as nests, 'steps' as label, concat('step ', step) as name,
            'step' as kind, step, null as tensor, null as layer, null as bucket, null as bytes, null as peer,
            null as flow, null as "offset", null as lane, t0, t1
        from (
            select pid, step, step_key, min(t_start_ns) as t0,
                lead(min(t_start_ns)) over (partition by pid order by step) as t1,
                lead(step) over (partition by pid order by step) as next_step
            from placed where kind = 'forward' and step >= 0 group by pid, step, step_key
        ) where next_step = step + 1 and t1 > t0
        union all
        select pid, step_key, rank is not null as of_rank, kind_order, not waiting as nests,
            case when waiting or track is null then concat_ws(': ', track, kind) else track end as label,
            case when kind = 'operator' then coalesce(layer, kind) else concat_ws(' ', kind, subject) end as name, kind, step, tensor, layer, bucket, bytes, peer, flow, "offset", lane,
            t_start_ns as t0, greatest(coalesce(t_end_ns, t_start_ns), t_start_ns + 1) as t1
        from placed
        """
    )
    connection.execute(
        """
        create temp view counted_all as
        select p.pid, concat_ws(' ', s.name, s.subject) as name, s.t_ns + p.shift + round(p.drift * (s.t_ns - p.middle))::bigint as t, s.value
        from samples s
        join (select * from processes qualify row_number() over (partition by number order by pid) = 1) p
            on s.process = p.number
        where isfinite(s.value) and s.t_ns is not null
        """
    )


def define_drawn(
    connection: duckdb.DuckDBPyConnection,
    steps: tuple[int, int] | None,
    sockets: bool,
    shortest_ns: int,
) -> None:
    """Create ``drawn`` and ``counted``: the selected part, anew at each call.

    `steps` are the first and the last one drawn, None for all; events that belong to no step are drawn when
    they start within the time of the drawn ones. Events shorter than `shortest_ns` are left out.
    """
    wanted = [f"t1 - t0 >= {shortest_ns}" if shortest_ns > 1 else "true"]
    during = "true"
    if not sockets:
        wanted.append(f"kind not in ({listed(SOCKETS)})")
    if steps is not None:
        first, last = steps
        [(lo, hi)] = connection.execute(
            "select min(t0), max(t1) from timeline where step_key between ? and ?", [first, last]
        ).fetchall()
        during = "false" if lo is None else f"between {lo} and {hi}"
        inside = "false" if lo is None else f"step_key = {NO_STEP} and t0 {during}"
        wanted.append(f"(step_key between {first} and {last} or {inside})")
        during = "false" if lo is None else f"t {during}"
    connection.execute(
        f"create or replace temp view drawn as select * from timeline where {' and '.join(wanted)}"
    )
    connection.execute(f"create or replace temp view counted as select * from counted_all where {during}")


def listed(kinds: Iterable[Kind]) -> str:
    """Kinds as the inside of an SQL ``in (...)``."""
    return ", ".join(f"'{kind}'" for kind in kinds)
