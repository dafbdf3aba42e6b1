"""The arrows of a picture: each gradient from ready through its bucket to done, each send to its receive, each request
to a parameter server there and back.

Viewers drop an arrow that goes back in time, so only those that go forward are made.
"""

from __future__ import annotations

import duckdb

from ..schema import Kind
from .timeline import listed

COLLECTIVES = (
    Kind.ALLREDUCE,
    Kind.BROADCAST,
    Kind.ALLGATHER,
    Kind.ALLTOALL,
    Kind.REDUCESCATTER,
)

REQUESTS = (Kind.KV_REQUEST, Kind.KV_RESPONSE)

ARGUMENTS = ("step", "tensor", "layer", "bucket", "bytes", "peer", "flow", "offset", "lane")
"""Columns of a slice that viewers show beside its name and time, where they are not null."""

SLICES = f"""
select pid, label, min(kind_order) over (partition by pid, label) as label_order, nests, t0, t1, name, kind,
    {", ".join(f'"{name}"' for name in ARGUMENTS)}, arrow_out, arrows_in, arrows_through
from arrowed order by pid, label_order, label, t0, t1 desc, kind_order
"""
"""Every slice, track after track, each in order of time; arrows are numbers, 0 for none, or texts of numbers with
commas."""


def define_arrows(connection: duckdb.DuckDBPyConnection) -> None:
    """Create ``arrowed``: the rows of ``drawn`` with the numbers of the arrows that leave, pass and reach them."""
    _define_gradients(connection)
    _define_messages(connection)
    _define_requests(connection)
    connection.execute(
        f"""
        create or replace temp view arrowed as
        with numbered as (
            select *, case when kind in ('{Kind.READY}', '{Kind.DONE}') then row_number() over (
                partition by pid, step_key, tensor, kind order by t0, t1) end as nth from drawn
        ), through as (
            select pid, step_key, bucket, through_kind as kind, through_t0 as t0, string_agg(id, ',' order by id) as ids
            from gradients where through_t0 is not null group by all
        ), reached as (
            select flow, to_offset, string_agg(id, ',' order by id) as ids from messages group by all
        )
        select n.*,
            coalesce(o.id, m.id, case when n.kind = '{Kind.KV_REQUEST}' and n.of_rank then q.id end, 0) as arrow_out,
            coalesce(i.id::varchar, r.ids,
                case when n.kind = '{Kind.KV_RESPONSE}' and n.of_rank then q.id::varchar end) as arrows_in,
            coalesce(t.ids, case when not n.of_rank then q.id::varchar end) as arrows_through
        from numbered n
        left join gradients o on n.kind = '{Kind.READY}' and o.pid = n.pid and o.step_key = n.step_key
            and o.tensor = n.tensor and o.nth = n.nth
        left join gradients i on n.kind = '{Kind.DONE}' and i.pid = n.pid and i.step_key = n.step_key
            and i.tensor = n.tensor and i.nth = n.nth
        left join through t on t.pid = n.pid and t.step_key = n.step_key and t.bucket = n.bucket
            and t.kind = n.kind and t.t0 = n.t0
        left join messages m on n.kind = '{Kind.SOCKET_SEND}' and m.flow = n.flow and m.from_offset = n."offset"
        left join requests q on n.kind in ({listed(REQUESTS)}) and q.flow = n.flow and q.bucket = n.bucket
        left join reached r on n.kind = '{Kind.SOCKET_RECV}' and r.flow = n.flow and r.to_offset = n."offset"
        """
    )


def _define_gradients(connection: duckdb.DuckDBPyConnection) -> None:
    """Create ``gradients``: each tensor's ``ready`` joined to its ``done`` through the collective of its bucket."""
    occurrence = "row_number() over (partition by pid, step_key, tensor order by t0, t1)"
    connection.execute(
        f"""
        create or replace temp table gradients as
        with starts as (
            select pid, step_key, tensor, t0, t1, {occurrence} as nth from drawn
            where kind = '{Kind.READY}' and tensor is not null
        ), ends as (
            select pid, step_key, tensor, t0, bucket, {occurrence} as nth from drawn
            where kind = '{Kind.DONE}' and tensor is not null
        ), carriers as (
            select pid, step_key, bucket, kind, min(t0) as t0 from drawn
            where kind in ({listed(COLLECTIVES)}) and bucket is not null
            group by pid, step_key, bucket, kind having count(*) = 1
        )
        select row_number() over (order by s.pid, s.t0, s.tensor, nth) as id, pid, step_key, s.tensor, nth,
            c.t0 as through_t0, c.kind as through_kind, e.bucket
        from starts s join ends e using (pid, step_key, tensor, nth)
        left join carriers c on c.pid = s.pid and c.step_key = s.step_key and c.bucket = e.bucket
            and c.t0 between s.t1 - 1 and e.t0
        where s.t1 - 1 <= e.t0
        """
    )


def _define_messages(connection: duckdb.DuckDBPyConnection) -> None:
    """Create ``messages``: each send joined to the receive that takes its last byte, by byte offset of the flow."""

    def calls(kind: Kind) -> str:
        return f"""
            select flow, "offset", bytes, t0, pid from drawn
            where kind = '{kind}' and flow is not null and "offset" is not null and bytes > 0
            qualify count(*) over (partition by flow, "offset") = 1
            """

    connection.execute(
        f"""
        create or replace temp table messages as
        with sends as ({calls(Kind.SOCKET_SEND)}), receives as ({calls(Kind.SOCKET_RECV)})
        select row_number() over (order by s.pid, s.t0, s.flow) + (select coalesce(max(id), 0) from gradients) as id,
            s.flow, s."offset" as from_offset, r."offset" as to_offset
        from sends s asof join receives r on s.flow = r.flow and s."offset" + s.bytes - 1 >= r."offset"
        where s."offset" + s.bytes <= r."offset" + r.bytes and s.t0 <= r.t0
        """
    )


def _define_requests(connection: duckdb.DuckDBPyConnection) -> None:
    """Create ``requests``: those whose message and answer were seen at worker and server, forward in time."""
    roles = {
        "asks": f"kind = '{Kind.KV_REQUEST}' and of_rank",
        "hears": f"kind = '{Kind.KV_REQUEST}' and not of_rank",
        "answers": f"kind = '{Kind.KV_RESPONSE}' and not of_rank",
        "gets": f"kind = '{Kind.KV_RESPONSE}' and of_rank",
    }
    times = ", ".join(f"min(t0) filter ({role}) as {name}" for name, role in roles.items())
    connection.execute(
        f"""
        create or replace temp table requests as
        with pairs as (
            select flow, bucket, {times} from drawn
            where kind in ({listed(REQUESTS)}) and flow is not null and bucket is not null
            group by flow, bucket having count(*) = 4
        )
        select row_number() over (order by asks, flow, bucket) + (select coalesce(max(id), 0) from gradients)
            + (select count(*) from messages) as id, flow, bucket
        from pairs where asks <= hears and hears <= answers and answers <= gets
        """
    )
