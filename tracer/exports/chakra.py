"""A trace as Chakra execution traces: one graph of work a rank, for simulators such as ASTRA-sim.

A ``.et`` file is a sequence of messages, each after its length: ``GlobalMetadata``, then one ``Node`` each
(mlcommons/chakra, schema/protobuf/et_def.proto). Times are whole microseconds on the rank's host, as the format
has no finer ones. Lanes and servers are not written: the graph says what has to be sent, not how.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from ...errors import UserError
from ..protobuf import bytes_field, number_field, text_field, varint
from ..schema import Kind
from ..trace import Trace, batches
from .timeline import listed
from .whole_file import WrittenFile, export_file
from .workload_graph import KINDS, WORK, Event, Node, WorkloadGraph

SCHEMA = "1.1.1-chakra.0.0.4"
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
COLLECTIVE_TYPES = {
    Kind.ALLREDUCE: 0,
    Kind.ALLGATHER: 2,
    Kind.BROADCAST: 5,
    Kind.ALLTOALL: 6,
    Kind.REDUCESCATTER: 7,
    Kind.BARRIER: 9,
}

_TEXT, _BOOL, _INT64, _INT32 = 29, 27, 9, 7  # fields of AttributeProto


def export_chakra(trace: Trace, path: Path, *, steps: tuple[int, int] | None = None) -> list[WrittenFile]:
    """Write ``<path>.<rank>.et`` for every rank of `trace`; all of them appear, or none.

    `steps` are the first and last step wanted, None for all. Raises UserError when there is nothing to write or
    the files cannot be written.
    """
    if path.name in ("", ".."):
        raise UserError(f"cannot write {path}: it is a folder; name the start of a file in it")
    prefix = path.with_suffix("") if path.suffix == ".et" else path
    window = "" if steps is None else f"and step between {steps[0]} and {steps[1]}"
    where = f"where rank is not null and kind in ({listed(KINDS)}) {window}"
    working = f"select distinct rank from events {where} and kind in ({listed(WORK)}) order by rank"
    ranks = [int(rank) for rank in trace.query(working)["rank"]]
    if not ranks:
        raise UserError(f"{trace.path} has no training events of a rank in the chosen steps; choose others")
    peers = trace.query(
        "select distinct peer from events where kind in ('kv_push', 'kv_pull') order by peer"
    )["peer"]
    servers = {
        str(peer): trace.meta.ranks + place for place, peer in enumerate(peers) if isinstance(peer, str)
    }
    files = []
    with contextlib.ExitStack() as stack, trace.connect() as connection:
        for rank in ranks:
            name = prefix.with_name(f"{prefix.name}.{rank}.et")
            file = stack.enter_context(export_file(name))
            sql = (
                "select step, kind, tensor, bucket, bytes, peer, t_start_ns, t_end_ns from events "
                f"{where} and rank = {rank} order by coalesce(step, -2), t_start_ns"
            )
            rows = (
                Event(*row)
                for batch in batches(connection, sql)
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            )
            files.append(_write_rank(file, name, rank, trace, rows, servers))
    return files


def _write_rank(
    file: BinaryIO, path: Path, rank: int, trace: Trace, rows: Iterator[Event], servers: dict[str, int]
) -> WrittenFile:
    metadata = b"".join(
        bytes_field(2, text_field(1, key) + text_field(_TEXT, value))
        for key, value in {"schema": SCHEMA, "tool": "vsketchdlc", "trace": trace.path.name}.items()
    )
    size = _write_message(file, text_field(1, SCHEMA) + metadata)
    graph = WorkloadGraph()
    count = 0
    for _, events in groupby(rows, key=lambda event: event.step):
        for node in graph.step(list(events)):
            size += _write_message(file, _node(node, rank, servers))
            count += 1
    return WrittenFile(path, count, size, [])


def _write_message(file: BinaryIO, message: bytes) -> int:
    return file.write(varint(len(message)) + message)


def _node(node: Node, rank: int, servers: dict[str, int]) -> bytes:
    fields = [number_field(1, node.number), text_field(2, node.name), number_field(3, _node_type(node.kind))]
    for number, others in ((4, node.follows), (5, node.needs)):
        if others:
            fields.append(bytes_field(number, b"".join(varint(other) for other in others)))
    start_us = max(0, node.start_ns // 1000)
    fields.append(number_field(6, start_us))
    fields.append(number_field(7, max(0, (node.end_ns - node.start_ns + 500) // 1000)))
    fields += [bytes_field(10, attribute) for attribute in _attributes(node, rank, servers)]
    return b"".join(fields)


def _node_type(kind: str) -> int:
    if kind in set(COLLECTIVE_TYPES):
        return COLLECTIVE
    return {Kind.KV_PUSH: SEND, Kind.KV_PULL: RECEIVE}.get(Kind(kind), COMPUTE)


def _attributes(node: Node, rank: int, servers: dict[str, int]) -> Iterator[bytes]:
    yield _number("is_cpu_op", _BOOL, 1)
    kind = _node_type(node.kind)
    if kind == COMPUTE:
        return
    yield _number("comm_size", _INT64, node.bytes or 0)
    if kind == COLLECTIVE:
        yield _number("comm_type", _INT64, COLLECTIVE_TYPES[Kind(node.kind)])
        yield text_field(1, "pg_name") + text_field(_TEXT, "0")
        return
    server = servers.get(node.peer or "", 0)
    yield _number("comm_src", _INT32, rank if kind == SEND else server)
    yield _number("comm_dst", _INT32, server if kind == SEND else rank)
    yield _number("comm_tag", _INT32, node.number & 0x7FFF_FFFF)


def _number(name: str, field: int, value: int) -> bytes:
    return text_field(1, name) + number_field(field, value)
