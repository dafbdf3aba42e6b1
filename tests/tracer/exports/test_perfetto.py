"""The Perfetto file is read back with Perfetto's own classes."""

from __future__ import annotations

import gzip

import pandas as pd
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.exports.perfetto import export_perfetto
from vsketchdlc.tracer.trace import TraceMeta, write_trace

pytest.importorskip("perfetto", reason="the perfetto package is not installed: pip install perfetto")


def test_slices_are_the_events_of_the_trace_to_the_nanosecond(training_trace, perfetto_check, tmp_path):
    trace = training_trace(ranks=2, steps=3)
    export_perfetto(trace, tmp_path / "out.pftrace")
    found = perfetto_check.check((tmp_path / "out.pftrace").read_bytes())
    wanted = trace.query("select kind, rank, t_start_ns, greatest(t_end_ns, t_start_ns + 1) from events")
    drawn = [
        (piece.category, rank, piece.start_ns, piece.end_ns)
        for rank in (0, 1)
        for piece in found.of(f"rank {rank} @ h{rank}")
        if piece.category != "step"
    ]
    assert sorted(drawn) == sorted(map(tuple, wanted.itertuples(index=False)))


def test_names_and_arguments_survive(training_trace, perfetto_check, tmp_path):
    export_perfetto(training_trace(ranks=1, steps=2), tmp_path / "out.pftrace")
    found = perfetto_check.check((tmp_path / "out.pftrace").read_bytes())
    piece = next(piece for piece in found.slices if piece.name == "done alexnet0_dense0_weight")
    assert piece.args.pop("bucket") >= 0
    assert piece.args == {
        "step": 0,
        "tensor": "horovod_allreduce.10",
        "layer": "dense0",
        "bytes": 150_994_944,
    }


def test_arrows_join_ready_bucket_and_done(training_trace, perfetto_check, tmp_path):
    export_perfetto(training_trace(ranks=2, steps=3), tmp_path / "out.pftrace")
    found = perfetto_check.check((tmp_path / "out.pftrace").read_bytes())
    ends = {flow: piece for piece in found.slices for flow in piece.ending_flows}
    assert len(ends) == 2 * 3 * 16
    for flow, done in ends.items():
        others = [piece for piece in found.slices if flow in piece.flows]
        assert sorted(piece.category for piece in others) == ["allreduce", "ready"]
        assert {piece.args["step"] for piece in others} == {done.args["step"]}


def test_arrows_join_sends_and_receives_of_two_processes(training_trace, perfetto_check, tmp_path):
    export_perfetto(training_trace(ranks=2, steps=1, sockets=True), tmp_path / "out.pftrace")
    found = perfetto_check.check((tmp_path / "out.pftrace").read_bytes())
    sends = {flow: piece for piece in found.slices if piece.category == "socket_send" for flow in piece.flows}
    received = [piece for piece in found.slices if piece.category == "socket_recv"]
    assert len(sends) > 500
    for piece in received:
        for flow in piece.ending_flows:
            assert sends.pop(flow).args["offset"] == piece.args["offset"]
    assert len(sends) < 100  # those whose receive had begun a little before


def test_rows_are_ordered_and_processes_keep_the_numbers_of_the_system(
    training_trace, perfetto_check, tmp_path
):
    export_perfetto(training_trace(), tmp_path / "out.pftrace")
    found = perfetto_check.check((tmp_path / "out.pftrace").read_bytes())
    assert sorted(found.numbers.values()) == [4000, 4001]
    uuid = next(uuid for uuid, name in found.processes.items() if name.startswith("rank 0"))
    rows = sorted(
        (found.orders[track], name) for track, (parent, name) in found.tracks.items() if parent == uuid
    )
    assert [name for _, name in rows][:2] == ["steps", "main"]


def test_processes_that_share_a_number_get_others(perfetto_check, tmp_path):
    rows = [
        {"rank": r, "process": 7, "host": f"h{r}", "kind": "barrier", "t_start_ns": 5, "t_end_ns": 5}
        for r in (0, 1)
    ]
    export_perfetto(write_trace(tmp_path / "t", TraceMeta(ranks=2), pd.DataFrame(rows)), tmp_path / "o")
    assert sorted(perfetto_check.check((tmp_path / "o").read_bytes()).numbers.values()) == [1, 2]


def test_counters_and_thinning_are_in_the_file(training_trace, perfetto_check, tmp_path):
    at = 5_000_000_000_000 + 400_000_000
    samples = pd.DataFrame(
        {"t_ns": [at, at + 5], "process": 4000, "subject": "x", "name": "rtt_us", "value": [1.5, -2.5]}
    )
    trace = training_trace(ranks=2, steps=40, samples=samples)
    written = export_perfetto(trace, tmp_path / "out.pftrace", limit_bytes=60_000)
    assert (tmp_path / "out.pftrace").stat().st_size == written.size_bytes < 60_000
    found = perfetto_check.check((tmp_path / "out.pftrace").read_bytes())
    assert found.instants == written.notes and "steps 1 to" in written.notes[0]
    assert found.counters == {"rtt_us x": [(at, 1.5), (at + 5, -2.5)]}


def test_gz_and_errors_are_as_for_the_chrome_file(training_trace, perfetto_check, tmp_path):
    trace = training_trace()
    export_perfetto(trace, tmp_path / "out.pftrace.gz")
    perfetto_check.check(gzip.decompress((tmp_path / "out.pftrace.gz").read_bytes()))
    with pytest.raises(UserError, match="no events in the chosen steps"):
        export_perfetto(trace, tmp_path / "out.pftrace", steps=(70, 80))
    assert not (tmp_path / "out.pftrace").exists()


def test_times_before_zero_are_moved_up(perfetto_check, tmp_path):
    rows = [{"rank": 0, "process": 7, "kind": "barrier", "t_start_ns": -50, "t_end_ns": -20}]
    export_perfetto(write_trace(tmp_path / "t", TraceMeta(ranks=1), pd.DataFrame(rows)), tmp_path / "o")
    assert [(s.start_ns, s.end_ns) for s in perfetto_check.check((tmp_path / "o").read_bytes()).slices] == [
        (0, 30)
    ]
