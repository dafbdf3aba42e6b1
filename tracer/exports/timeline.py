"""The queries behind a picture: which rows are drawn, on which track, and which arrows join them.

Views, each on top of the one before: ``timeline`` (every event with its process, track and name), ``drawn``
(the selected ones), ``arrowed`` (with arrow ids); ``counted`` holds the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from ..schema import Kind
from ..trace import HostInfo

WAITING = (
    Kind.READY,
    Kind.DONE,
    Kind.KV_PUSH,
    Kind.KV_PULL,
    Kind.KV_REQUEST,
    Kind.KV_QUEUE,
    Kind.KV_RESPONSE,
)
"""Many tensors are in these states at once: they get rows of their own and are never nested."""

SOCKETS = (Kind.SOCKET_SEND, Kind.SOCKET_RECV)

COLLECTIVES = (
    Kind.ALLREDUCE,
    Kind.BROADCAST,
    Kind.ALLGATHER,
    Kind.ALLTOALL,
    Kind.REDUCESCATTER,
)

NO_STEP = -2
"""Stands for a null step in joins; -1 is before the first step."""

_ARGUMENTS = ", ".join(
    f"""'"{name}":' || to_json({name})"""
    for name in ("step", "tensor", "layer", "bucket", "bytes", "peer", "flow", "lane")
)

SLICES = f"""
select pid, label, min(kind_order) over (partition by pid, label) as label_order, nests, t0, t1, name, kind,
    '{{' || concat_ws(',', {_ARGUMENTS}) || '}}' as arguments, arrow_out, arrow_in, arrows_through
from arrowed order by pid, label_order, label, t0, t1 desc, kind_order
"""
"""Every slice, track after track, each in order of time; `arguments` is a JSON object, arrows are 0 for none."""

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
            e.kind in ({_listed(WAITING)}) or (e.kind = '{Kind.NEGOTIATE}' and e.tensor is not null) as waiting
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
        select pid, step_key, 0 as kind_order, true as nests, 'steps' as label, concat('step ', step) as name,
            'step' as kind, step, null as tensor, null as layer, null as bucket, null as bytes, null as peer,
            null as flow, null as lane, t0, t1
        from (
            select pid, step, step_key, min(t_start_ns) as t0,
                lead(min(t_start_ns)) over (partition by pid order by step) as t1,
                lead(step) over (partition by pid order by step) as next_step
            from placed where kind = 'forward' and step >= 0 group by pid, step, step_key
        ) where next_step = step + 1 and t1 > t0
        union all
        select pid, step_key, kind_order, not waiting as nests,
            case when waiting or track is null then concat_ws(': ', track, kind) else track end as label,
            case when kind = 'operator' then coalesce(layer, kind) else concat_ws(' ', kind, subject) end as name, kind, step, tensor, layer, bucket, bytes, peer, flow, lane,
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
    """Create ``drawn``, ``arrowed`` and ``counted``: the selected part, anew at each call.

    `steps` are the first and the last one drawn, None for all; events that belong to no step are drawn when
    they start within the time of the drawn ones. Events shorter than `shortest_ns` are left out.
    """
    wanted = [f"t1 - t0 >= {shortest_ns}" if shortest_ns > 1 else "true"]
    during = "true"
    if not sockets:
        wanted.append(f"kind not in ({_listed(SOCKETS)})")
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
    _define_arrows(connection)


def _define_arrows(connection: duckdb.DuckDBPyConnection) -> None:
    """Join each tensor's ``ready`` to its ``done`` through the collective of its bucket.

    An arrow only goes forward in time: viewers drop the others.
    """
    occurrence = "row_number() over (partition by pid, step_key, tensor order by t0, t1)"
    connection.execute(
        f"""
        create or replace temp table arrows as
        with starts as (
            select pid, step_key, tensor, t0, t1, {occurrence} as nth from drawn
            where kind = '{Kind.READY}' and tensor is not null
        ), ends as (
            select pid, step_key, tensor, t0, bucket, {occurrence} as nth from drawn
            where kind = '{Kind.DONE}' and tensor is not null
        ), carriers as (
            select pid, step_key, bucket, kind, min(t0) as t0 from drawn
            where kind in ({_listed(COLLECTIVES)}) and bucket is not null
            group by pid, step_key, bucket, kind having count(*) = 1
        )
        select row_number() over (order by s.pid, s.t0, s.tensor, nth) as id, pid, step_key, s.tensor, nth,
            s.t0 as start_t0, e.t0 as end_t0, c.t0 as through_t0, c.kind as through_kind, e.bucket
        from starts s join ends e using (pid, step_key, tensor, nth)
        left join carriers c on c.pid = s.pid and c.step_key = s.step_key and c.bucket = e.bucket
            and c.t0 between s.t1 - 1 and e.t0
        where s.t1 - 1 <= e.t0
        """
    )
    connection.execute(
        f"""
        create or replace temp view arrowed as
        with numbered as (
            select *, case when kind in ('{Kind.READY}', '{Kind.DONE}') then row_number() over (
                partition by pid, step_key, tensor, kind order by t0, t1) end as nth from drawn
        ), through as (
            select pid, step_key, bucket, through_kind as kind, through_t0 as t0, string_agg(id, ',' order by id) as ids
            from arrows where through_t0 is not null group by all
        )
        select n.*, coalesce(o.id, 0) as arrow_out, coalesce(i.id, 0) as arrow_in, t.ids as arrows_through
        from numbered n
        left join arrows o on n.kind = '{Kind.READY}' and o.pid = n.pid and o.step_key = n.step_key
            and o.tensor = n.tensor and o.nth = n.nth
        left join arrows i on n.kind = '{Kind.DONE}' and i.pid = n.pid and i.step_key = n.step_key
            and i.tensor = n.tensor and i.nth = n.nth
        left join through t on t.pid = n.pid and t.step_key = n.step_key and t.bucket = n.bucket
            and t.kind = n.kind and t.t0 = n.t0
        """
    )


def _listed(kinds: Iterable[Kind]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)
