"""Chakra execution traces, JSON or protobuf, one file a rank, as a Trace.

The rank stands before the ending (``trace.3.et``, ``chakra.0.json``). Nodes become collectives, sends
and receives with the rank on the other side as peer (``socket_send``, ``socket_recv``), or operators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..trace import TraceMeta
from .chakra_graph import GraphNode, add_graph, graph_notes
from .chakra_json import read_json_graph
from .chakra_protobuf import read_protobuf_graph
from .damaged_json import Document
from .event_rows import EventRows, Imported, given_ranks
from .source_file import SourceFile

_RANK = re.compile(r"\.(\d{1,6})\.(et|json)(\.gz)?$")


def import_chakra(files: Sequence[tuple[SourceFile, Document | None]]) -> Imported:
    """One Trace of all `files`; those without a document are protobuf.

    Raises UserError with the byte offset when a file has no readable node.
    """
    rows = EventRows()
    notes: list[str] = []
    names = [source.path.name for source, _ in files]
    known = [int(found[1]) if (found := _RANK.search(name)) else None for name in names]
    ranks, assumed = given_ranks(known, names)
    plans, every_node, seen = [], list[GraphNode](), set[int]()
    for rank, (source, document) in zip(ranks, files, strict=True):
        if document is None:
            graph = read_protobuf_graph(source, rows)
            nodes = graph.nodes
            notes += [f"repaired: {repair} ({source.path.name})" for repair in graph.repairs]
        else:
            nodes = read_json_graph(document, rows, notes)
        if not nodes:
            raise source.unreadable(0, "it holds no nodes")
        if rank in seen:
            raise source.unreadable(0, f"another file is of rank {rank} too")
        seen.add(rank)
        plans.append(add_graph(nodes, rank, rows))
        every_node += nodes
    notes += [*assumed, *graph_notes(plans, every_node)]
    missing = [rank for rank in range(max(ranks)) if rank not in seen]
    meta = TraceMeta(source="imported:chakra", ranks=max(ranks) + 1, missing_ranks=missing, notes=notes)
    return Imported(rows, meta)
