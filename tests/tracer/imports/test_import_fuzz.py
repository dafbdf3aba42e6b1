"""Thousands of damaged files: each is imported, or refused in one line that names a byte. Never anything else."""

from __future__ import annotations

import gzip
import json
import signal
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.imports.reading import ForeignFormat, read_foreign
from vsketchdlc.tracer.protobuf import bytes_field, number_field, text_field, varint

HANG_S = 60  # far beyond any import; only a hang gets there
EXAMPLES = 500
fuzzed = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

numbers = st.sampled_from(
    [
        b"-1",
        b"1e999",
        b"-1e308",
        b"NaN",
        b"Infinity",
        b"9" * 25,
        b"9" * 5000,
        b"null",
        b"true",
        b'"x"',
        b"[]",
        b"{}",
        b"0.1",
    ]
)
texts = st.sampled_from(
    [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\n",
        b"\x00",
        b"\xff\xfe",
        b'"\\ud800"',
        b"\xed\xa0\x80",
        b"[" * 2000,
        b'{"a":' * 2000,
    ]
)
mutation = st.tuples(
    st.sampled_from(["cut", "drop", "insert", "double", "flip", "number", "end"]),
    st.floats(0, 1),
    st.floats(0, 0.2),
    st.one_of(st.binary(max_size=6), texts),
    numbers,
)


def mutate(data: bytes, steps) -> bytes:
    for kind, where, length, piece, number in steps:
        at = int(where * len(data))
        to = min(len(data), at + int(length * len(data)) + 1)
        if kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[to:]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "double":
            data = data[:to] + data[at:]
        elif kind == "flip" and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << (to % 8))]) + data[at + 1 :]
        elif kind == "number":
            colon = data.find(b":", at)
            stop = min(
                (place for place in (data.find(mark, colon) for mark in b",}]") if place > 0), default=-1
            )
            if 0 < colon < stop:
                data = data[: colon + 1] + number + data[stop:]
        elif kind == "end":
            data = data + data[at:]
    return data


def attempt(path, data, wanted):
    path.write_bytes(data)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the import hangs"))
    signal.alarm(HANG_S)
    try:
        imported = read_foreign([path], wanted)
    except UserError as error:
        assert "\n" not in str(error) and ("byte offset" in str(error) or "unpacks to more" in str(error))
        return
    finally:
        signal.alarm(0)
    events = imported.rows.events()
    assert 0 < events.num_rows <= 4 * len(data) + 4
    assert events.column("process").null_count == events.column("t_start_ns").null_count == 0
    events.to_pandas()
    if (samples := imported.rows.samples()) is not None:
        samples.to_pandas()
    json.dumps([imported.meta.notes, imported.meta.settings, imported.meta.missing_ranks])


def protobuf_file() -> bytes:
    def message(body: bytes) -> bytes:
        return varint(len(body)) + body

    data = message(text_field(1, "1.1.1-chakra.0.0.4"))
    for number in range(12):
        attributes = [
            ("comm_size", 9, 4096),
            ("comm_type", 9, number % 10),
            ("is_cpu_op", 27, 1),
            ("comm_dst", 7, 3),
        ]
        body = number_field(1, number) + text_field(2, f"step{number}.x") + number_field(3, 4 + number % 4)
        body += bytes_field(5, varint(max(0, number - 1))) + number_field(6, number * 10) + number_field(7, 5)
        body += b"".join(
            bytes_field(10, text_field(1, name) + number_field(field, value))
            for name, field, value in attributes
        )
        data += message(body)
    return data


@fuzzed
@given(steps=st.lists(mutation, min_size=1, max_size=4), closed=st.booleans(), named=st.booleans())
def test_horovod(shapes, tmp_path, steps, closed, named):
    data = mutate(shapes.as_horovod_writes(shapes.horovod(), closed), steps)
    attempt(tmp_path / "f.json", data, ForeignFormat.HOROVOD if named else None)


@fuzzed
@given(
    steps=st.lists(mutation, min_size=1, max_size=4), indent=st.sampled_from([None, 4]), named=st.booleans()
)
def test_mxnet(shapes, tmp_path, steps, indent, named):
    data = mutate(json.dumps(shapes.mxnet(), indent=indent).encode(), steps)
    attempt(tmp_path / "f.json", data, ForeignFormat.MXNET if named else None)


@fuzzed
@given(
    steps=st.lists(mutation, min_size=1, max_size=4), indent=st.sampled_from([None, 2]), named=st.booleans()
)
def test_kineto(shapes, tmp_path, steps, indent, named):
    data = mutate(json.dumps(shapes.kineto(), indent=indent).encode(), steps)
    attempt(tmp_path / "f.json", data, ForeignFormat.KINETO if named else None)


@fuzzed
@given(steps=st.lists(mutation, min_size=1, max_size=4), named=st.booleans())
def test_chakra_json(shapes, tmp_path, steps, named):
    data = mutate(json.dumps(shapes.chakra(), indent=2).encode(), steps)
    attempt(tmp_path / "f.json", data, ForeignFormat.CHAKRA if named else None)


@fuzzed
@given(steps=st.lists(mutation, min_size=1, max_size=4), named=st.booleans())
def test_chakra_protobuf(tmp_path, steps, named):
    attempt(tmp_path / "f.et", mutate(protobuf_file(), steps), ForeignFormat.CHAKRA if named else None)


@fuzzed
@given(steps=st.lists(mutation, min_size=1, max_size=3))
def test_gzip(shapes, tmp_path, steps):
    attempt(tmp_path / "f.json.gz", mutate(gzip.compress(json.dumps(shapes.kineto()).encode()), steps), None)


@fuzzed
@given(data=st.binary(max_size=400), wanted=st.sampled_from([None, *ForeignFormat]))
def test_anything_at_all(tmp_path, data, wanted):
    attempt(tmp_path / "f", data, wanted)


@pytest.mark.parametrize(
    "piece",
    [
        b"{",
        b"[",
        b'{"a":',
        b'"\\"',
        b"\n{",
        b'\n {"a":[',
        b"]}",
        b'{"traceEvents":[',
        b"\n" + b" " * 150 + b"{",
        b"\x08",
    ],
)
def test_text_that_never_closes_needs_time_and_memory_in_proportion(tmp_path, piece):
    data = piece * (150_000 // len(piece))
    for start in (b"", b"[", b'{"traceEvents":['):
        tracemalloc.start()
        attempt(tmp_path / "f.json", start + data, None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60 * len(data)


def test_a_small_gzip_of_endless_zeros_is_refused(tmp_path):
    packed = gzip.compress(b"[" + b" " * (80 << 20))
    (tmp_path / "f.json.gz").write_bytes(packed)
    with pytest.raises(UserError, match="unpacks to more than"):
        read_foreign([tmp_path / "f.json.gz"])


def test_the_real_files_cut_anywhere(real, tmp_path):
    for path in sorted(real.glob("*.json*")):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        data = data[:200_000]
        for cut in range(1, 12):
            attempt(tmp_path / "f.json", data[: len(data) * cut // 12], None)
