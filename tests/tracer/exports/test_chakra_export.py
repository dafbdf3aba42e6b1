"""Chakra files are read back with messages made from the format's definition, not with our reader."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.exports.chakra import export_chakra
from vsketchdlc.tracer.trace import TraceMeta, write_trace

# message: {field: (number, type, repeated)}, from schema/protobuf/et_def.proto of mlcommons/chakra
UINT64, INT64, INT32, BOOL, STRING, MESSAGE = 4, 3, 5, 8, 9, 11
MESSAGES = {
    "AttributeProto": {
        "name": (1, STRING, False),
        "int32_val": (7, INT32, False),
        "int64_val": (9, INT64, False),
        "bool_val": (27, BOOL, False),
        "string_val": (29, STRING, False),
    },
    "GlobalMetadata": {"version": (1, STRING, False), "attr": (2, "AttributeProto", True)},
    "Node": {
        "id": (1, UINT64, False),
        "name": (2, STRING, False),
        "type": (3, INT32, False),
        "ctrl_deps": (4, UINT64, True),
        "data_deps": (5, UINT64, True),
        "start_time_micros": (6, UINT64, False),
        "duration_micros": (7, UINT64, False),
        "attr": (10, "AttributeProto", True),
    },
}


@pytest.fixture(scope="module")
def messages():
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, members in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, (number, kind, repeated) in members.items():
            entry = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if field.endswith("_val"):
                entry.oneof_index = 0
            if isinstance(kind, str):
                entry.type, entry.type_name = MESSAGE, f".ChakraProtoMsg.{kind}"
            else:
                entry.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in MESSAGES
    }


def read(path, messages):
    data, offset, parts = path.read_bytes(), 0, []
    while offset < len(data):
        length = shift = 0
        while True:
            byte = data[offset]
            offset += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        parts.append(data[offset : offset + length])
        offset += length
    nodes = [messages["Node"].FromString(part) for part in parts[1:]]
    return messages["GlobalMetadata"].FromString(parts[0]), nodes


def attributes(node):
    return {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}


def test_one_file_a_rank_with_a_graph_that_can_be_played(training_trace, messages, tmp_path):
    written = export_chakra(training_trace(ranks=2, steps=3), tmp_path / "run")
    assert [file.path.name for file in written] == ["run.0.et", "run.1.et"]
    metadata, nodes = read(tmp_path / "run.1.et", messages)
    assert metadata.version == "1.1.1-chakra.0.0.4"
    assert [node.id for node in nodes] == list(range(len(nodes))) and len(nodes) == written[1].count
    for node in nodes:
        assert all(other < node.id for other in [*node.ctrl_deps, *node.data_deps])


def test_a_bucket_waits_for_the_piece_of_backward_that_its_last_gradient_needs(
    training_trace, messages, tmp_path
):
    export_chakra(training_trace(ranks=1, steps=2), tmp_path / "run.et")
    _, nodes = read(tmp_path / "run.0.et", messages)
    by_id = {node.id: node for node in nodes}
    step = [node for node in nodes if node.name.startswith("step1.")]
    pieces = [node for node in step if ".backward" in node.name]
    assert len(pieces) == 17  # 16 gradients cut it
    reduced = [node for node in step if ".allreduce" in node.name]
    assert len(reduced) == 5 and all(node.type == 7 for node in reduced)
    for node in reduced:
        [source] = [by_id[other] for other in node.data_deps]
        assert ".backward." in source.name
        end = source.start_time_micros + source.duration_micros
        assert end <= node.start_time_micros + 1


def test_update_needs_every_bucket_and_the_next_forward_needs_the_update(training_trace, messages, tmp_path):
    export_chakra(training_trace(ranks=1, steps=2), tmp_path / "run")
    _, nodes = read(tmp_path / "run.0.et", messages)
    named = {node.name: node for node in nodes}
    reduced = {node.id for node in nodes if node.name.startswith("step0.allreduce")}
    assert reduced <= set(named["step0.update"].data_deps)
    assert list(named["step1.forward"].data_deps) == [named["step0.update"].id]


def test_collectives_carry_what_simulators_ask_for(training_trace, messages, tmp_path):
    export_chakra(training_trace(ranks=1, steps=1), tmp_path / "run")
    _, nodes = read(tmp_path / "run.0.et", messages)
    found = [attributes(node) for node in nodes if node.type == 7]
    assert all(one["comm_type"] == 0 and one["is_cpu_op"] is True and one["pg_name"] == "0" for one in found)
    assert (
        sum(one["comm_size"] for one in found) == 244_403_360
        or sum(one["comm_size"] for one in found) > 240e6
    )


def test_pushes_and_pulls_name_rank_and_server(messages, tmp_path):
    rows = [
        {
            "rank": 1,
            "process": 1,
            "kind": "kv_push",
            "tensor": "w",
            "peer": "s0",
            "bytes": 8,
            "t_start_ns": 5000,
            "t_end_ns": 9000,
        },
        {
            "rank": 1,
            "process": 1,
            "kind": "kv_pull",
            "tensor": "w",
            "peer": "s1",
            "bytes": 8,
            "t_start_ns": 9000,
            "t_end_ns": 9900,
        },
    ]
    export_chakra(write_trace(tmp_path / "t", TraceMeta(ranks=2), pd.DataFrame(rows)), tmp_path / "run")
    _, (push, pull) = read(tmp_path / "run.1.et", messages)
    assert (push.type, attributes(push)["comm_src"], attributes(push)["comm_dst"]) == (5, 1, 2)
    assert (pull.type, attributes(pull)["comm_src"], attributes(pull)["comm_dst"]) == (6, 3, 1)
    assert list(pull.ctrl_deps) == [push.id]
    assert (push.start_time_micros, push.duration_micros, pull.duration_micros) == (5, 4, 1)


def test_all_files_or_none(training_trace, tmp_path, monkeypatch):
    (tmp_path / "run.0.et").write_text("old")
    trace = training_trace(ranks=2, steps=1)
    monkeypatch.setattr("vsketchdlc.tracer.exports.chakra.WorkloadGraph.step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_chakra(trace, tmp_path / "run")
    assert (tmp_path / "run.0.et").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.0.et", "trace"]


def test_nothing_to_write_is_a_mistake(training_trace, tmp_path):
    with pytest.raises(UserError, match="no training events"):
        export_chakra(training_trace(), tmp_path / "run", steps=(50, 60))


@pytest.mark.parametrize("place", ["", ".", ".."])
def test_a_folder_is_no_start_of_a_file_name(training_trace, place):
    with pytest.raises(UserError, match="it is a folder"):
        export_chakra(training_trace(), Path(place))
