"""Reading logs: whatever was written before the end is there, nothing else is."""

import numpy as np
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer import raw


def test_a_log_ends_at_its_first_empty_record(recording, tmp_path):
    log = recording().log("engine")
    log.mark(raw.FORWARD_BEGIN, 1000, 0)
    log.ready(1, 1500, 1700)
    read = raw.read_log(log.write(tmp_path / "0.1.log"))
    assert read is not None
    assert read.thread == "engine"
    assert read.start_ns.tolist() == [1000, 1500]
    assert read.end_ns.tolist() == [1000, 1700]


def test_durations_beyond_four_seconds_keep_microseconds(recording, tmp_path):
    log = recording().log()
    log.mpi(raw.ALLREDUCE, 10, 10 + 13_000_000_000)
    read = raw.read_log(log.write(tmp_path / "0.1.log"))
    assert read is not None
    assert abs(int(read.end_ns[0]) - 13_000_000_010) < 1024


def test_a_log_cut_in_the_middle_of_a_record_keeps_the_whole_ones(recording, tmp_path):
    log = recording().log()
    for at in range(10):
        log.mark(raw.FORWARD_BEGIN, at, 0)
    path = log.write(tmp_path / "0.1.log", empty=0)
    path.write_bytes(path.read_bytes()[:-7])
    read = raw.read_log(path)
    assert read is not None
    assert len(read.records) == 9


def test_a_header_that_was_never_finished_is_no_log(tmp_path):
    path = tmp_path / "0.1.log"
    path.write_bytes(bytes(4096))
    assert raw.read_log(path) is None
    path.write_bytes(b"VSK")
    assert raw.read_log(path) is None


def test_a_log_of_another_version_is_refused_by_name(recording, tmp_path):
    path = recording().log().write(tmp_path / "0.1.log")
    data = bytearray(path.read_bytes())
    data[8] = 99
    path.write_bytes(data)
    with pytest.raises(UserError, match="another version"):
        raw.read_log(path)


def test_a_line_of_the_hook_that_was_cut_short_ends_its_file(recording):
    process = recording()
    process.log().mark(raw.FORWARD_BEGIN, 5, 0)
    process.gradient(1, "dense0_weight", 400)
    folder = process.write()
    with (folder / "hook.jsonl").open("a") as file:
        file.write('{"operation": "allred')
    assert len(raw.read_process(folder).entries) == 1


def test_processes_without_records_do_not_count_and_the_latest_job_of_a_rank_does(recording):
    recording(rank=3).write()
    for rank in (1, 0):
        process = recording(rank=rank)
        process.log().mark(raw.FORWARD_BEGIN, 5, 0)
        process.write()
    again = recording(rank=1)
    again.folder = again.folder.with_name("h0.77.99")
    again.pid = 77
    again.log().mark(raw.FORWARD_BEGIN, 5, 0)
    again.write()
    found = raw.read_recording(recording.folder)
    assert [(process.rank, process.pid) for process in found] == [(0, 100), (1, 77)]


def test_the_record_is_what_the_native_library_writes():
    assert raw.RECORD.itemsize == 32
    assert [raw.RECORD.fields[name][1] for name in ("t", "dur", "kind", "flags", "a", "b", "c")] == [
        0, 8, 12, 13, 14, 16, 24,
    ]  # fmt: skip
    assert np.dtype(raw.HEADER).itemsize == 72
