"""Chakra execution traces as protobuf (``.et``): messages one after the other, each behind its length.

The first message is ``GlobalMetadata``, every other one a ``Node`` (mlcommons/chakra, et_def.proto).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Damaged,
    Field,
    as_double,
    as_float,
    fields,
    read_varint,
    signed,
)
from ..schema import Kind
from .chakra_graph import GraphNode
from .chakra_json import COMM_COLL, COMM_RECV, COMM_SEND
from .event_rows import LARGEST_TIME_NS, EventRows
from .event_rows import text as clean
from .source_file import SourceFile

_COLLECTIVE_TYPES = {
    0: Kind.ALLREDUCE,
    1: Kind.ALLREDUCE,
    2: Kind.ALLGATHER,
    3: Kind.ALLGATHER,
    4: Kind.BROADCAST,
    5: Kind.BROADCAST,
    6: Kind.ALLTOALL,
    7: Kind.REDUCESCATTER,
    8: Kind.REDUCESCATTER,
    9: Kind.BARRIER,
}
_MOST_BYTES = 1 << 50


@dataclass
class ProtobufGraph:
    """What one file holds."""

    version: str
    nodes: list[GraphNode]
    repairs: list[str] = field(default_factory=list)


def looks_like_protobuf(source: SourceFile) -> bool:
    """Whether the file begins with a ``GlobalMetadata`` message, or at least with what no text has."""
    data = source.data
    try:
        length, offset = read_varint(data, 0, len(data))
        if 0 < length <= len(data) - offset:
            first = list(fields(data, offset, offset + length))
            if all(one.number in (1, 2) and one.wire_type == BYTES for one in first):
                return True
    except Damaged:
        pass
    return any(byte < 9 for byte in data[:256]) and data.lstrip()[:1] not in (b"[", b"{")


def read_protobuf_graph(source: SourceFile, rows: EventRows) -> ProtobufGraph:
    """The nodes in `source`; where the file is cut or damaged, those before that place.

    Raises UserError with the byte offset when not even one node can be read.
    """
    data = source.data
    graph = ProtobufGraph("", [], list(source.repairs))
    taken: set[int] = set()
    offset = 0
    try:
        while offset < len(data):
            start = offset
            length, offset = read_varint(data, offset, len(data))
            if length > len(data) - offset:
                raise Damaged(start, f"a message of {length:,} bytes is cut")
            if start == 0:
                graph.version = _version(data, offset, offset + length)
            else:
                _add(_node(data, offset, offset + length), graph, taken, rows)
            offset += length
    except Damaged as damage:
        if not graph.nodes:
            raise source.unreadable(damage.offset, damage.reason) from None
        graph.repairs.append(
            f"damaged at byte offset {damage.offset}, {len(graph.nodes):,} nodes before it kept"
        )
    if not graph.nodes:
        raise source.unreadable(len(data), "it holds no nodes")
    return graph


def _add(node: GraphNode, graph: ProtobufGraph, taken: set[int], rows: EventRows) -> None:
    if node.number in taken:
        rows.dropped["nodes without a number of their own"] += 1
        return
    taken.add(node.number)
    graph.nodes.append(node)


def _version(data: bytes, start: int, end: int) -> str:
    version = ""
    for one in fields(data, start, end):
        if one.number == 1 and isinstance(one.value, bytes):
            version = _text(one.value)
    return version


def _node(data: bytes, start: int, end: int) -> GraphNode:
    node = GraphNode(0, "", Kind.OPERATOR)
    kind = 0
    attributes: dict[str, int | float | str] = {}
    for one in fields(data, start, end):
        if one.number in (4, 5):
            node.needs += _repeated(one)
        elif isinstance(one.value, bytes):
            if one.number == 2:
                node.name = _text(one.value)
            elif one.number == 10:
                name, value = _attribute(one.value, one.offset)
                attributes[name] = value
        elif one.number == 1:
            node.number = one.value
        elif one.number == 3:
            kind = one.value
        elif one.number == 6:
            node.start_ns = _micros(one.value)
        elif one.number == 7:
            node.duration_ns = _micros(one.value)
    node.name = node.name or f"node {node.number}"
    node.on_cpu = attributes.get("is_cpu_op", 1) != 0
    size = attributes.get("comm_size")
    node.bytes = size if isinstance(size, int) and 0 <= size <= _MOST_BYTES and kind >= COMM_SEND else None
    if kind == COMM_COLL:
        number = attributes.get("comm_type", 0)
        node.kind = _COLLECTIVE_TYPES.get(number, Kind.OPERATOR) if isinstance(number, int) else Kind.OPERATOR
    elif kind in (COMM_SEND, COMM_RECV):
        node.kind = Kind.SOCKET_SEND if kind == COMM_SEND else Kind.SOCKET_RECV
        node.peer = f"rank {attributes.get('comm_dst' if kind == COMM_SEND else 'comm_src', 0)}"
    return node


def _micros(value: int) -> int | None:
    return value * 1000 if value <= LARGEST_TIME_NS // 4000 else None


def _repeated(one: Field) -> list[int]:
    """Numbers of a repeated varint field, packed or not."""
    if isinstance(one.value, int):
        return [one.value]
    numbers: list[int] = []
    offset = 0
    while offset < len(one.value):
        number, offset = read_varint(one.value, offset, len(one.value))
        numbers.append(number)
    return numbers


def _attribute(data: bytes, offset: int) -> tuple[str, int | float | str]:
    """Name and value of an ``AttributeProto``; lists and bytes count as an empty text."""
    name = ""
    value: int | float | str = ""
    try:
        for one in fields(data):
            if one.number == 1 and isinstance(one.value, bytes):
                name = _text(one.value)
            elif one.number > 2:
                value = _value(one)
    except Damaged as damage:
        raise Damaged(offset + damage.offset, damage.reason) from None
    return name, value


def _value(one: Field) -> int | float | str:
    if isinstance(one.value, bytes):
        return _text(one.value) if one.number == 29 else ""
    if one.wire_type == FIXED64:
        return as_double(one.value) if one.number == 3 else one.value
    if one.wire_type == FIXED32:
        return as_float(one.value) if one.number == 5 else one.value
    return signed(one.value) if one.wire_type == VARINT else ""


def _text(data: bytes) -> str:
    return clean(data.decode("utf-8", "replace")) or ""
