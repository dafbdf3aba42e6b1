"""A strict reader of Perfetto traces with Perfetto's own protobuf classes: what a viewer would drop is an error."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

CLEARED, NEEDED = 1, 2


@dataclass
class Slice:
    track: int
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]
    flows: set[int]
    ending_flows: set[int]


@dataclass
class Checked:
    processes: dict[int, str] = field(default_factory=dict)  # by uuid
    numbers: dict[int, int] = field(default_factory=dict)
    tracks: dict[int, tuple[int, str]] = field(default_factory=dict)  # uuid: (parent, name)
    orders: dict[int, int] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[str] = field(default_factory=list)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def of(self, process: str) -> list[Slice]:
        uuid = next(uuid for uuid, name in self.processes.items() if name == process)
        return [piece for piece in self.slices if self.tracks[piece.track][0] == uuid]


def check(data: bytes, *, alone: bool = True) -> Checked:
    """All of one file; in an archive (not `alone`) an arrow may have its other end in another file."""
    trace = pb.Trace()
    trace.ParseFromString(data)
    _known(trace)
    found = Checked()
    tables: dict[str, dict[int, str]] = defaultdict(dict)
    events = []
    for position, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        assert bool(packet.sequence_flags & CLEARED) == (position == 0) and packet.sequence_flags & NEEDED
        for entry in packet.interned_data.event_names:
            _learn(tables["names"], entry.iid, entry.name)
        for entry in packet.interned_data.event_categories:
            _learn(tables["categories"], entry.iid, entry.name)
        for entry in packet.interned_data.debug_annotation_names:
            _learn(tables["keys"], entry.iid, entry.name)
        for entry in packet.interned_data.debug_annotation_string_values:
            _learn(tables["texts"], entry.iid, entry.str.decode())
        if packet.HasField("track_descriptor"):
            _describe(packet.track_descriptor, found)
        elif packet.HasField("track_event"):
            assert packet.HasField("timestamp")
            assert packet.track_event.track_uuid in found.tracks, "a row is used before it is introduced"
            events.append((packet.timestamp, position, _event(packet.track_event, tables)))
        elif not packet.HasField("interned_data"):
            raise AssertionError(f"a packet without a payload: {packet}")
    _play(sorted(events, key=lambda event: event[:2]), found)
    _joined(found.slices, alone)
    return found


def _known(message: Any) -> None:
    assert not list(UnknownFieldSet(message)), f"a field that Perfetto does not know: {message}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for one in value if descriptor.is_repeated else [value]:
                _known(one)


def _learn(table: dict[int, str], iid: int, text: str) -> None:
    assert iid > 0 and iid not in table and text not in table.values(), f"{text} is interned twice"
    table[iid] = text


def _describe(descriptor: Any, found: Checked) -> None:
    assert descriptor.uuid > 0 and (descriptor.uuid not in found.tracks or descriptor.name == "vsketchdlc")
    if descriptor.HasField("process"):
        found.processes[descriptor.uuid] = descriptor.process.process_name
        assert descriptor.process.pid > 0, "process 0 is hidden"
        assert descriptor.process.pid not in found.numbers.values()
        found.numbers[descriptor.uuid] = descriptor.process.pid
        assert descriptor.child_ordering == pb.TrackDescriptor.EXPLICIT
    elif descriptor.name != "vsketchdlc":
        assert descriptor.parent_uuid in found.processes, "a row without a process"
    found.tracks[descriptor.uuid] = (descriptor.parent_uuid, descriptor.name)
    found.orders[descriptor.uuid] = descriptor.sibling_order_rank


def _event(event: Any, tables: dict[str, dict[int, str]]) -> dict[str, Any]:
    args = {}
    for note in event.debug_annotations:
        kind = note.WhichOneof("value")
        value = tables["texts"][note.string_value_iid] if kind == "string_value_iid" else getattr(note, kind)
        args[tables["keys"][note.name_iid]] = value
    return {
        "type": event.type,
        "track": event.track_uuid,
        "name": tables["names"][event.name_iid] if event.name_iid else event.name,
        "category": tables["categories"][event.category_iids[0]] if event.category_iids else "",
        "args": args,
        "flows": set(event.flow_ids),
        "ending": set(event.terminating_flow_ids),
        "value": event.double_counter_value,
    }


def _play(events: list[tuple[int, int, dict[str, Any]]], found: Checked) -> None:
    """Run begins and ends in time as Perfetto does: an end closes the topmost slice of its row."""
    stacks: dict[int, list[Slice]] = defaultdict(list)
    for time_ns, _, event in events:
        stack = stacks[event["track"]]
        if event["type"] == pb.TrackEvent.TYPE_SLICE_BEGIN:
            assert event["name"]
            piece = Slice(
                event["track"],
                event["name"],
                event["category"],
                time_ns,
                -1,
                event["args"],
                event["flows"],
                event["ending"],
            )
            stack.append(piece)
            assert len(stack) <= 200
        elif event["type"] == pb.TrackEvent.TYPE_SLICE_END:
            assert stack, "an end without a begin"
            piece = stack.pop()
            piece.end_ns = time_ns
            assert time_ns > piece.start_ns
            found.slices.append(piece)
        elif event["type"] == pb.TrackEvent.TYPE_COUNTER:
            found.counters.setdefault(found.tracks[event["track"]][1], []).append((time_ns, event["value"]))
        else:
            found.instants.append(event["name"])
    assert not any(stacks.values()), "a begin without an end"


def _joined(slices: list[Slice], alone: bool) -> None:
    points = defaultdict(list)
    for piece in slices:
        for flow in piece.flows:
            points[flow].append((piece.start_ns, 0, piece))
        for flow in piece.ending_flows:
            points[flow].append((piece.start_ns, 1, piece))
    for flow, chain in points.items():
        chain.sort(key=lambda point: point[:2])
        if not alone and len(chain) == 1:
            continue
        assert flow > 0 and [end for _, end, _ in chain] == [0] * (len(chain) - 1) + [1], (
            f"arrow {flow}: {chain}"
        )
