"""Horovod's timeline: processes are tensors, fused responses repeat, and files end anyhow."""

from __future__ import annotations

import pandas as pd
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.imports import event_rows
from vsketchdlc.tracer.imports.reading import read_foreign


def imported(path, data):
    path.write_bytes(data)
    answer = read_foreign([path])
    return answer.rows.events().to_pandas(), answer.meta, answer


def test_a_fused_response_is_one_bucket_with_the_bytes_of_all_its_tensors(shapes, tmp_path):
    events, meta, _ = imported(
        tmp_path / "t.json", shapes.as_horovod_writes(shapes.horovod(tensors=3, steps=2))
    )
    reduced = events[events.kind == "allreduce"]
    assert list(reduced.step) == [0, 1] and list(reduced.bucket) == [0, 0]
    assert set(reduced.bytes) == {(1 + 2 + 3) * 256 * 4}
    assert [(row.t_start_ns, row.t_end_ns) for row in reduced.itertuples()] == [
        (11_300_000, 12_202_000),
        (16_300_000, 17_202_000),
    ]
    assert meta.source == "imported:horovod-timeline" and meta.ranks == 2
    assert [(one.name, one.bytes, one.dtype) for one in meta.tensors] == [
        (f"horovod_allreduce.{number}", 1024 * (number + 1), "float32") for number in range(3)
    ]


def test_each_tensor_is_ready_negotiated_and_done(shapes, tmp_path):
    events, _, _ = imported(tmp_path / "t.json", shapes.as_horovod_writes(shapes.horovod(tensors=3, steps=2)))
    one = events[(events.tensor == "horovod_allreduce.1") & (events.step == 1)].set_index(["kind", "rank"])
    assert one.loc[("ready", 0)].t_start_ns == 15_002_000
    assert one.loc[("ready", 1)].t_start_ns == 15_012_000
    assert (one.loc[("negotiate", 0)].t_start_ns, one.loc[("negotiate", 0)].t_end_ns) == (
        15_002_000,
        15_102_000,
    )
    assert one.loc[("done", 0)].t_end_ns == 18_501_000
    assert one.loc[("done", 0)].bucket == 0 and set(one.bytes) == {2048}


def test_broadcasts_are_before_the_first_step(shapes, tmp_path):
    events, _, _ = imported(tmp_path / "t.json", shapes.as_horovod_writes(shapes.horovod()))
    assert set(events[events.tensor == "horovod_broadcast.w"].step) == {-1}
    assert set(events[events.kind == "broadcast"].step) == {-1}


def test_cycles_become_samples(shapes, tmp_path):
    _, _, answer = imported(tmp_path / "t.json", shapes.as_horovod_writes(shapes.horovod(steps=3)))
    assert answer.rows.samples().column("value").to_pylist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("epoch", [True, False])
def test_newer_files_know_when_they_began_and_older_ones_say_that_they_do_not(shapes, tmp_path, epoch):
    _, meta, _ = imported(tmp_path / "t.json", shapes.as_horovod_writes(shapes.horovod(epoch=epoch)))
    assert meta.settings == ({"zero_is_us_since_epoch": 1_600_000_000_000_000} if epoch else {})
    assert any("cannot be aligned" in note for note in meta.notes) is not epoch


def test_a_file_of_an_old_version_was_never_closed(shapes, tmp_path):
    whole, _, _ = imported(tmp_path / "a.json", shapes.as_horovod_writes(shapes.horovod()))
    events, meta, _ = imported(tmp_path / "b.json", shapes.as_horovod_writes(shapes.horovod(), closed=False))
    pd.testing.assert_frame_equal(events, whole)
    assert meta.notes[0] == 'repaired: missing "]" (b.json)'


def test_half_an_event_at_the_end_is_dropped_and_told(shapes, tmp_path):
    data = shapes.as_horovod_writes(shapes.horovod(), closed=False) + b'{"ph": "B", "na'
    _, meta, _ = imported(tmp_path / "t.json", data)
    assert meta.notes[0] == 'repaired: missing "]", 1 partial event dropped (t.json)'


def test_the_tail_of_an_older_longer_file_is_ignored(shapes, tmp_path):
    old = shapes.as_horovod_writes(shapes.horovod(steps=9))
    new = shapes.as_horovod_writes(shapes.horovod(steps=1))
    events, meta, _ = imported(tmp_path / "t.json", new + old[len(new) :])
    assert set(events.step) == {-1, 0}
    assert f"{len(old) - len(new) + 1:,} bytes behind the end ignored" in meta.notes[0]


def test_control_characters_and_empty_lines_do_no_harm(shapes, tmp_path):
    data = shapes.as_horovod_writes(shapes.horovod()).replace(b"},\n", b"},\n\n\x00\x00", 3)
    events, meta, _ = imported(tmp_path / "t.json", data)
    assert len(events) == len(imported(tmp_path / "u.json", shapes.as_horovod_writes(shapes.horovod()))[0])
    assert "unreadable text at byte offset" in meta.notes[0]


def test_absurd_durations_and_unbalanced_ends_are_told(shapes, tmp_path):
    events = shapes.horovod(steps=1)
    for event in events:
        if event["ph"] == "X":
            event["dur"] = 812_355_471_858
    events = [event for event in events if event.get("name") != "NEGOTIATE_ALLREDUCE"]
    frame, meta, _ = imported(tmp_path / "t.json", shapes.as_horovod_writes(events))
    assert set(frame[frame.kind == "ready"].eval("t_end_ns - t_start_ns")) == {0}
    assert "repaired: 8 marks with absurd durations taken as instants" in meta.notes
    assert "dropped 3 ends without a begin or begins without an end" in meta.notes


@pytest.mark.parametrize("data", [b"", b"[", b"[\n", b"[]", b"\n\n", b"[{", b'[{"ph":'])
def test_files_without_an_event_name_the_place(tmp_path, data):
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(UserError, match=r"cannot import .*t\.json: .*\(byte offset \d+\)"):
        read_foreign([tmp_path / "t.json"])


def test_a_number_with_a_control_character_behind_it_is_still_a_number():
    assert event_rows.whole("1\x1c") == 1
    assert event_rows.whole(" 7 ") == 7
    assert event_rows.whole("7x") is None


def test_the_real_files(real):
    whole = read_foreign([real / "horovod_timeline_nccl_8ranks.json"])
    events = whole.rows.events().to_pandas()
    assert whole.meta.ranks == 8 and events[events.kind == "negotiate"].tensor.nunique() == 90
    assert list(events[events.kind == "allreduce"].bytes) == [10 * 4 + 256 * 10 * 4]
    bad = read_foreign([real / "horovod_timeline_bad_durations.json"])
    assert "repaired: 19 marks with absurd durations taken as instants" in bad.meta.notes
