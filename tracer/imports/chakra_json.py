"""Chakra graphs as JSON (``workload_graph``) and PyTorch execution traces (``nodes``)."""

from __future__ import annotations

from typing import Any

from ..schema import Kind
from .chakra_graph import GraphNode
from .damaged_json import Document
from .event_rows import EventRows, text, time_ns, whole

NODES = ("workload_graph", "nodes")
"""Keys of the array of nodes in the two formats."""

COLLECTIVES = {
    "allreduce": Kind.ALLREDUCE,
    "reducescatter": Kind.REDUCESCATTER,
    "allgather": Kind.ALLGATHER,
    "alltoall": Kind.ALLTOALL,
    "broadcast": Kind.BROADCAST,
    "barrier": Kind.BARRIER,
}
COMM_SEND, COMM_RECV, COMM_COLL = 5, 6, 7
_LARGEST_NUMBER = 1 << 63
_DTYPES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1,
    "bool": 1, "uint8": 1, "int8": 1,
}  # fmt: skip


def looks_like_chakra(document: Document) -> bool:
    """Whether the document is a Chakra graph or a PyTorch execution trace."""
    if any(isinstance(value, str) and "chakra" in value for value in document.top.values()):
        return True
    return any(_has(node, "nodetype") or _has(node, "ctrl_deps") for node in document.objects[:50])


def read_json_graph(document: Document, rows: EventRows, notes: list[str]) -> list[GraphNode]:
    """The nodes of the graph, of either format; what is assumed to read them is added to `notes`."""
    nodes: list[GraphNode] = []
    calls = 0
    taken: set[int] = set()
    for value in document.objects:
        fields = {name.lower(): item for name, item in value.items()}
        number = whole(fields.get("id"), _LARGEST_NUMBER)
        if number is None or number in taken:
            rows.dropped["nodes without a number of their own"] += 1
            continue
        taken.add(number)
        is_call = "inputs" in fields
        calls += is_call
        nodes.append(_execution(fields, number) if is_call else _workload(fields, number))
    if calls and any(node.start_ns is None for node in nodes):
        for place, node in enumerate(sorted(nodes, key=lambda node: node.number)):
            node.start_ns = place * 1000
        notes.append(
            "assumed: calls are one microsecond apart in the order of their numbers, as the file has no times"
        )
    return nodes


def _has(value: dict[str, Any], name: str) -> bool:
    return any(key.lower() == name for key in value)


def _workload(fields: dict[str, Any], number: int) -> GraphNode:
    """A node of a ``workload_graph``: runtime in microseconds, no start time."""
    name = text(fields.get("name")) or f"node {number}"
    kind = whole(fields.get("nodetype"))
    found = GraphNode(number, name, Kind.OPERATOR, on_cpu=fields.get("is_cpu_op") is not False)
    found.needs = _numbers(fields.get("data_deps")) + _numbers(
        fields.get("ctrldeps", fields.get("ctrl_deps"))
    )
    runtime_ns = time_ns(fields.get("runtime"))
    found.duration_ns = runtime_ns if runtime_ns is not None and runtime_ns >= 0 else None
    if kind == COMM_COLL:
        found.kind = collective(name) or Kind.OPERATOR
    elif kind in (COMM_SEND, COMM_RECV):
        found.kind = Kind.SOCKET_SEND if kind == COMM_SEND else Kind.SOCKET_RECV
    return found


def _execution(fields: dict[str, Any], number: int) -> GraphNode:
    """A node of a PyTorch execution trace: calls in the order that they were made, mostly without times."""
    name = text(fields.get("name")) or f"node {number}"
    found = GraphNode(number, name, Kind.OPERATOR)
    start_ns, length_ns = time_ns(fields.get("ts")), time_ns(fields.get("dur"))
    if start_ns is not None and length_ns is not None and length_ns >= 0:
        found.start_ns, found.duration_ns = start_ns, length_ns
    attributes = _attributes(fields.get("attrs"))
    if name == "record_param_comms":
        found.kind = collective(str(attributes.get("collective_name", ""))) or Kind.OPERATOR
        count = whole(attributes.get("in_msg_nelems"), 1 << 50)
        size = _DTYPES.get(str(attributes.get("dtype", "")).lower())
        if count is not None and size is not None:
            found.bytes = count * size
    return found


def _attributes(value: Any) -> dict[str, Any]:
    entries = value if isinstance(value, list) else []
    return {
        entry["name"]: entry.get("value")
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }


def _numbers(value: Any) -> list[int]:
    entries = value if isinstance(value, list) else [value]
    found = [whole(entry, _LARGEST_NUMBER) for entry in entries]
    return [number for number in found if number is not None]


def collective(name: str) -> Kind | None:
    """The collective that a name speaks of, in any spelling (``all_reduce``, ``ncclKernel_AllReduce_RING``)."""
    plain = name.lower().replace("_", "").replace("-", "")
    return next((kind for word, kind in COLLECTIVES.items() if word in plain), None)
