"""PyTorch profiler files: one a rank, collectives from the kernels that calls launched."""

from __future__ import annotations

import gzip
import json

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.tracer.imports.reading import read_foreign


def imported(folder, *documents):
    for number, document in enumerate(documents):
        (folder / f"worker{number}.json").write_text(json.dumps(document))
    answer = read_foreign([folder])
    return answer.rows.events().to_pandas(), answer.meta


def test_a_collective_lasts_as_long_as_the_kernel_that_its_call_launched(shapes, tmp_path):
    events, meta = imported(tmp_path, shapes.kineto(rank=0, world=1))
    [reduced] = events[events.kind == "allreduce"].itertuples()
    base = 1_700_000_000_000_000_000 + 1_000_000
    assert (reduced.t_start_ns - base, reduced.t_end_ns - base) == (360_250, 560_375)
    assert (reduced.bytes, reduced.step, reduced.bucket, reduced.track) == (4000, 0, 0, "GPU 0 stream 20")
    assert "ProfilerStep#17 is step 0" in meta.notes


def test_without_kernels_the_call_is_taken_and_that_is_told(shapes, tmp_path):
    events, meta = imported(tmp_path, shapes.kineto(rank=0, world=1, kernels=False))
    [reduced] = events[events.kind == "allreduce"].itertuples()
    assert (reduced.t_end_ns - reduced.t_start_ns, reduced.bytes) == (50_000, 4000)
    assert any("1 collectives last as long as their call" in note for note in meta.notes)


def test_phases_of_a_step(shapes, tmp_path):
    events, _ = imported(tmp_path, shapes.kineto(rank=0, world=1))
    base = 1_700_000_000_000_000_000 + 1_000_000
    phases = events[events.track == "step"]
    assert [(row.kind, row.t_start_ns - base, row.t_end_ns - base) for row in phases.itertuples()] == [
        ("forward", 10_000, 210_000),
        ("backward", 250_000, 400_500),
        ("update", 600_000, 700_000),
    ]


def test_a_folder_of_ranks_is_one_trace(shapes, tmp_path):
    events, meta = imported(tmp_path, shapes.kineto(rank=2, world=4), shapes.kineto(rank=0, world=4))
    assert (meta.ranks, meta.missing_ranks) == (4, [1, 3])
    assert set(events["rank"]) == {0, 2} and set(events.process) == {4000, 4002}
    assert any("clocks of the ranks agree" in note for note in meta.notes)


def test_hosts_come_from_the_names_of_the_files(shapes, tmp_path):
    for rank, host in enumerate(["node-a", "node-b"]):
        with gzip.open(tmp_path / f"{host}_77.1682725898237042340.pt.trace.json.gz", "wt") as file:
            json.dump(shapes.kineto(rank=rank), file)
    answer = read_foreign([tmp_path])
    assert [(host.name, host.ranks) for host in answer.meta.hosts] == [("node-a", [0]), ("node-b", [1])]
    events = answer.rows.events().to_pandas()
    assert set(events.process) == {77, (1 << 32) + 77} and set(events.host) == {"node-a", "node-b"}


def test_a_file_that_does_not_say_its_rank_gets_the_next_free_one(shapes, tmp_path):
    events, meta = imported(
        tmp_path, shapes.kineto(rank=None), shapes.kineto(rank=0), shapes.kineto(rank=None)
    )
    assert set(events["rank"]) == {0, 1, 2}
    assert any("worker0.json is of rank 1, because it does not say" in note for note in meta.notes)
    assert any("worker2.json is of rank 2, because it does not say" in note for note in meta.notes)


def test_two_files_that_claim_one_rank_are_refused_unless_one_follows_the_other(shapes, tmp_path):
    with pytest.raises(UserError, match="both say they are rank 0"):
        imported(tmp_path, shapes.kineto(rank=0), shapes.kineto(rank=0))
    events, _ = imported(tmp_path, shapes.kineto(rank=0), shapes.kineto(rank=0, at=9000.0))
    assert len(events[events.kind == "allreduce"]) == 2


def test_a_file_that_was_cut_keeps_rank_and_base(shapes, tmp_path):
    text = json.dumps(shapes.kineto(rank=1), indent=1)
    (tmp_path / "w.json").write_text(text[: text.index('"cudaLaunchKernel"')])
    answer = read_foreign([tmp_path / "w.json"])
    assert set(answer.rows.events().column("rank").to_pylist()) == {1}
    assert min(answer.rows.events().column("t_start_ns").to_pylist()) == 1_700_000_000_001_000_000
    assert answer.meta.notes[0] == 'repaired: missing "]}", 1 partial event dropped (w.json)'


def test_gzip_that_was_cut_is_read_as_far_as_it_goes(shapes, tmp_path):
    document = shapes.kineto(rank=0)
    document["traceEvents"] = [
        {**event, "name": f"{event['name']}{i}"} for i in range(60) for event in document["traceEvents"]
    ]
    packed = gzip.compress(json.dumps(document).encode())
    (tmp_path / "w.json.gz").write_bytes(packed[: len(packed) * 3 // 4])
    answer = read_foreign([tmp_path / "w.json.gz"])
    assert "repaired: gzip cut short," in answer.meta.notes[0] and len(answer.rows) > 50


def test_the_real_files(real):
    answer = read_foreign([real / "kineto_rank0_of_128.json.gz", real / "kineto_rank1_of_128.json.gz"])
    events = answer.rows.events().to_pandas()
    assert answer.meta.ranks == 128 and len(answer.meta.missing_ranks) == 126
    phases = events[events.track == "step"].groupby(["rank", "step"]).kind.apply(sorted)
    assert all(kinds == ["backward", "forward", "update"] for kinds in phases) and len(phases) == 4
    data = events[events.kind.isin(["allreduce", "alltoall", "allgather"])]
    assert len(data) == 20 and data.bytes.notna().all()
    alone = read_foreign([real / "kineto_without_rank.json.gz"])
    assert "assumed: kineto_without_rank.json.gz is of rank 0, because it does not say" in alone.meta.notes
