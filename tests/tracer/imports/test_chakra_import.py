"""Chakra graphs: JSON and protobuf, with times and without."""

from __future__ import annotations

import gzip
import json
import tarfile

import pandas as pd
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.exports.chakra import export_chakra
from vsketchdlc.tracer.imports.reading import read_foreign
from vsketchdlc.tracer.protobuf import bytes_field, number_field, text_field, varint
from vsketchdlc.tracer.trace import TraceMeta, write_trace


def message(body):
    return varint(len(body)) + body


def node(number, kind, *fields, needs=()):
    deps = b"".join(number_field(5, other) for other in needs)
    return message(
        number_field(1, number)
        + text_field(2, f"n{number}")
        + number_field(3, kind)
        + deps
        + b"".join(fields)
    )


def attribute(name, field, value):
    return bytes_field(10, text_field(1, name) + number_field(field, value))


METADATA = message(text_field(1, "0.0.4"))
RING = (
    METADATA
    + node(0, 5, attribute("comm_size", 9, 4096), attribute("comm_dst", 7, 1))
    + node(1, 6, attribute("comm_size", 9, 4096), attribute("comm_src", 7, 7), needs=[0])
    + node(2, 4, number_field(7, 12), needs=[1])
    + node(3, 7, attribute("comm_size", 9, 99), attribute("comm_type", 9, 7), number_field(7, 5), needs=[2])
)


def test_a_graph_without_start_times_is_laid_out_by_its_dependencies(shapes, tmp_path):
    (tmp_path / "run.3.json").write_text(json.dumps(shapes.chakra()))
    answer = read_foreign([tmp_path / "run.3.json"])
    events = answer.rows.events().to_pandas()
    assert [(row.kind, row.layer, row.t_start_ns, row.t_end_ns) for row in events.itertuples()] == [
        ("operator", "aten::mm", 0, 30_000),
        ("operator", "gemm", 30_000, 80_000),
        ("allreduce", None, 80_000, 100_000),
    ]
    assert set(events["rank"]) == {3} and answer.meta.missing_ranks == [0, 1, 2]
    assert any("a node starts when all that it depends on has ended" in note for note in answer.meta.notes)


def test_protobuf_sends_and_receives_name_the_other_side(tmp_path):
    (tmp_path / "ring.0.et").write_bytes(RING)
    events = read_foreign([tmp_path / "ring.0.et"]).rows.events().to_pandas()
    assert [(row.kind, row.peer, row.bytes, row.t_end_ns) for row in events.itertuples()] == [
        ("socket_send", "rank 1", 4096, 0),
        ("socket_recv", "rank 7", 4096, 0),
        ("operator", None, pytest.approx(float("nan"), nan_ok=True), 12_000),
        ("reducescatter", None, 99, 17_000),
    ]


def test_what_we_export_comes_back(tmp_path):
    rows = [
        {"step": 4, "rank": 0, "process": 1, "kind": kind, "bytes": size, "bucket": bucket, "t_start_ns": at, "t_end_ns": at + 5000}
        for kind, at, size, bucket in [
            ("forward", 10_000, None, None),
            ("backward", 15_000, None, None),
            ("allreduce", 21_000, 256, 0),
            ("update", 30_000, None, None),
        ]
    ]  # fmt: skip
    events = pd.DataFrame(rows).astype({"bytes": "Int64", "bucket": "Int64"})
    export_chakra(write_trace(tmp_path / "t", TraceMeta(ranks=1), events), tmp_path / "run")
    again = read_foreign([tmp_path / "run.0.et"]).rows.events().to_pandas()
    assert [(row.step, row.kind, row.t_start_ns, row.t_end_ns) for row in again.itertuples()] == [
        (4, row["kind"], row["t_start_ns"], row["t_end_ns"]) for row in rows
    ]
    assert again.bytes[2] == 256


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_cut_file_keeps_the_nodes_before(tmp_path, cut):
    (tmp_path / "ring.0.et").write_bytes(RING[:-cut])
    answer = read_foreign([tmp_path / "ring.0.et"])
    assert len(answer.rows) == 3
    assert answer.meta.notes[0].startswith("repaired: damaged at byte offset ")
    assert "3 nodes before it kept (ring.0.et)" in answer.meta.notes[0]


@pytest.mark.parametrize(
    "data",
    [
        METADATA,
        METADATA + b"\x05abc",
        b"\x00",
        b"\xff" * 11,
        METADATA + message(b"\x0f"),
        METADATA + b"\x80" * 20,
    ],
)
def test_files_without_a_node_name_the_place(tmp_path, data):
    (tmp_path / "x.et").write_bytes(data)
    with pytest.raises(UserError, match=r"cannot import .*\(byte offset \d+\)"):
        read_foreign([tmp_path / "x.et"])


def test_circles_are_told(shapes, tmp_path):
    document = shapes.chakra()
    document["workload_graph"][0]["data_deps"] = [3]
    (tmp_path / "c.json").write_text(json.dumps(document))
    answer = read_foreign([tmp_path / "c.json"])
    assert len(answer.rows) == 3 and any("in a circle" in note for note in answer.meta.notes)


def test_two_files_of_one_rank_are_refused(shapes, tmp_path):
    for name in ("a.0.json", "b.0.json"):
        (tmp_path / name).write_text(json.dumps(shapes.chakra()))
    with pytest.raises(UserError, match="another file is of rank 0 too"):
        read_foreign([tmp_path])


def test_the_real_files(real, tmp_path):
    ring = read_foreign([real / "chakra_ring_allreduce_8npu.et"]).rows.events().to_pandas()
    assert ring.kind.value_counts().to_dict() == {"socket_send": 14, "socket_recv": 14, "operator": 7}
    assert ring.bytes.sum() == 28 * 131_072
    host = read_foreign([real / "chakra_host_resnet_2gpu.json.gz"]).rows.events().to_pandas()
    assert (len(host[host.kind == "allreduce"]), len(host[host.kind == "broadcast"])) == (15, 6)
    with tarfile.open(real / "chakra_graph_json.tar.gz") as archive:
        member = archive.extractfile("jsonData/chakra.0.json")
        (tmp_path / "chakra.0.json.gz").write_bytes(gzip.compress(member.read()))
    graph = read_foreign([tmp_path / "chakra.0.json.gz"]).rows.events().to_pandas()
    assert len(graph) == 3664 and {"allreduce", "broadcast"} <= set(graph.kind)
