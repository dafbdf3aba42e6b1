"""MXNet's profile: operators twice, numbers as hashes, steps only from the operators' names."""

from __future__ import annotations

import json

from vsketchdlc.tracer.imports.reading import read_foreign


def imported(path, document):
    path.write_text(json.dumps(document))
    answer = read_foreign([path])
    return answer.rows.events().to_pandas(), answer.meta, answer


def test_operators_are_counted_once(shapes, tmp_path):
    events, meta, _ = imported(tmp_path / "p.json", shapes.mxnet(steps=2))
    operators = events[events.track == "cpu/0"]
    assert len(operators) == 12 and set(operators.t_end_ns - operators.t_start_ns) == {900_000}
    assert any(note.startswith("12 operators that stand twice") for note in meta.notes)
    assert meta.source == "imported:mxnet-profiler"


def test_steps_and_phases_come_from_the_names(shapes, tmp_path):
    events, _, _ = imported(tmp_path / "p.json", shapes.mxnet(steps=2))
    base = 1_559_670_569_000_000_000
    phases = events[events.track == "step"].sort_values("t_start_ns")
    assert [
        (row.kind, row.step, (row.t_start_ns - base) // 1000, (row.t_end_ns - base) // 1000)
        for row in phases.itertuples()
    ] == [
        ("forward", 0, 1_000, 2_900),
        ("backward", 0, 2_900, 4_900),
        ("update", 0, 5_000, 5_900),
        ("forward", 1, 11_000, 12_900),
        ("backward", 1, 12_900, 14_900),
        ("update", 1, 15_000, 15_900),
    ]


def test_bulked_operators_are_backward_after_the_gradient_of_the_loss_is_set(shapes, tmp_path):
    names = ["SetValueOp", "ImperativeBulk", "mean", "SetValueOp", "ImperativeBulk", "multi_sgd_update"]
    document = {"traceEvents": [], "displayTimeUnit": "ms"}
    for place, name in enumerate(names * 2):
        event = {"name": name, "cat": "operator", "pid": 0, "tid": 7}
        document["traceEvents"] += [
            {**event, "ph": "B", "ts": 100 * place},
            {**event, "ph": "E", "ts": 100 * place + 60},
        ]
    events, _, _ = imported(tmp_path / "p.json", document)
    phases = events[events.track == "step"].sort_values("t_start_ns")
    assert [
        (row.kind, row.step, row.t_start_ns // 1000, row.t_end_ns // 1000) for row in phases.itertuples()
    ] == [
        ("forward", 0, 100, 260),
        ("backward", 0, 260, 460),
        ("update", 0, 500, 560),
        ("forward", 1, 700, 860),
        ("backward", 1, 860, 1060),
        ("update", 1, 1100, 1160),
    ]


def test_calls_and_counters_are_kept(shapes, tmp_path):
    events, _, answer = imported(tmp_path / "p.json", shapes.mxnet(steps=1))
    assert list(events[events.track == "MXNET_C_API"].layer) == ["MXNDArrayWaitAll"]
    [sample] = answer.rows.samples().to_pylist()
    assert (sample["subject"], sample["name"], sample["value"]) == ("Device Storage", "bytes", 64.0)


def test_a_file_that_is_still_being_written_is_read_so_far(shapes, tmp_path):
    text = json.dumps(shapes.mxnet(steps=3), indent=4)
    (tmp_path / "p.json").write_text(text[: len(text) * 2 // 3])
    answer = read_foreign([tmp_path / "p.json"])
    assert answer.meta.notes[0] == 'repaired: missing "]}", 1 partial event dropped (p.json)'
    assert set(answer.rows.events().column("step").to_pylist()) >= {0, 1}


def test_an_inference_has_no_phases(shapes, tmp_path):
    document = shapes.mxnet(steps=1)
    document["traceEvents"] = [e for e in document["traceEvents"] if "ackward" not in e["name"]]
    events, meta, _ = imported(tmp_path / "p.json", document)
    assert set(events.kind) == {"operator"} and not any("assumed: steps" in note for note in meta.notes)


def test_the_real_file(real):
    answer = read_foreign([real / "mxnet_profile_cpu_cnn.json.gz"])
    events = answer.rows.events().to_pandas()
    assert sorted(events[events.track == "step"].kind) == ["backward", "forward", "update"]
    assert len(events[events.layer == "Convolution"]) == 2
    assert answer.rows.samples().num_rows == 1724
