"""A recorded step becomes events: the join rule of the completions, exact stamps, honest gaps."""

import pytest
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.decode.convert import convert


def one_step(process, *, base=0, step=0):
    """Two fused gradients and a third alone, as Horovod does it; times in ns after `base`."""
    python, engine, horovod = process.log("python"), process.log("engine"), process.log("horovod")
    for op, (name, ready) in enumerate([(1, 300), (2, 310), (3, 500)], start=1 + 3 * step):
        python.push(op, base + 100 + op, base + 110 + op, name=name, step=step)
        engine.ready(op, base + ready, base + ready + 5)
    horovod.control(base + 200, base + 210, number=10 * step)
    horovod.control(base + 320, base + 330, number=10 * step + 1)
    horovod.mpi(raw.ALLREDUCE, base + 350, base + 400, bytes_=300, op=0, number=10 * step + 2)
    horovod.done(1 + 3 * step, base + 420)
    horovod.done(2 + 3 * step, base + 422)
    horovod.control(base + 510, base + 520, number=10 * step + 3)
    horovod.mpi(raw.ALLREDUCE, base + 530, base + 600, bytes_=1000, op=0, number=10 * step + 4)
    horovod.done(3 + 3 * step, base + 605)
    python.mark(raw.FORWARD_BEGIN, base + 10, step)
    engine.mark(raw.FORWARD_END, base + 150, step)
    engine.mark(raw.BACKWARD_END, base + 505, step)
    python.mark(raw.UPDATE_CALL, base + 125, step)
    engine.mark(raw.UPDATE_END, base + 650, step)
    return horovod


def with_names(process):
    process.gradient(1, "dense1_weight", 100, 1)
    process.gradient(2, "dense1_bias", 200, 0)
    process.gradient(3, "conv0_weight", 1000, 2)
    return process


@pytest.fixture
def trace(recording, tmp_path):
    process = with_names(recording())
    one_step(process)
    process.write()
    return convert(raw.read_recording(recording.folder), tmp_path / "trace", ["python", "train.py"])


def rows(trace, where):
    table = trace.query(f"select kind, tensor, bucket, bytes, t_start_ns, t_end_ns from events where {where} "
                        "order by t_start_ns, t_end_ns")  # fmt: skip
    whole = table.astype(object).where(table.notna(), None)
    return list(whole.itertuples(index=False, name=None))


def test_the_fused_bucket_with_its_copies(trace):
    assert rows(trace, "track = 'horovod' and bucket = 0") == [
        ("fuse_in", None, 0, 300, 330, 350),
        ("allreduce", None, 0, 300, 350, 400),
        ("fuse_out", None, 0, 300, 400, 420),
    ]


def test_a_gradient_alone_in_its_bucket_is_not_copied(trace):
    assert rows(trace, "track = 'horovod' and bucket = 1") == [("allreduce", None, 1, 1000, 530, 600)]


def test_the_life_of_one_gradient(trace):
    name = "horovod_allreduce.1"
    found = [(row[0], *row[2:]) for row in rows(trace, f"tensor = '{name}'")]
    assert found == [
        ("push", None, 100, 101, 111),
        ("ready", None, 100, 101, 300),
        ("enqueue", None, 100, 300, 305),
        ("negotiate", 0, 100, 305, 330),
        ("done", 0, 100, 400, 420),
    ]


def test_forward_backward_update(trace):
    assert [(row[0], *row[4:]) for row in rows(trace, "track = 'step'")] == [
        ("forward", 10, 150),
        ("backward", 150, 505),
        ("update", 420, 650),
    ]


def test_names_and_layers_come_from_the_hook(trace):
    assert [(t.name, t.parameter, t.layer, t.bytes) for t in trace.meta.tensors] == [
        ("horovod_allreduce.1", "dense1_weight", "dense1", 100),
        ("horovod_allreduce.0", "dense1_bias", "dense1", 200),
        ("horovod_allreduce.2", "conv0_weight", "conv0", 1000),
    ]
    assert trace.meta.command == ["python", "train.py"]


def test_every_control_call_is_there(trace):
    assert len(rows(trace, "kind = 'negotiate' and tensor is null")) == 3


def test_a_killed_rank_leaves_what_it_had(recording, tmp_path):
    process = with_names(recording())
    python = process.log()
    python.push(1, 100, 110, name=1, step=0)
    process.log("engine").ready(1, 200, 205)
    process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    assert [row[0] for row in rows(trace, "true")] == ["push", "ready", "enqueue"]


def test_missing_ranks_are_named(recording, tmp_path):
    process = with_names(recording(rank=1, size=4))
    one_step(process)
    process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    assert trace.meta.missing_ranks == [0, 2, 3]
    assert any("rank 0, 2, 3" in note for note in trace.meta.notes)


def test_without_marks_the_nth_reduction_is_step_n(recording, tmp_path):
    process = with_names(recording())
    python, engine, horovod = process.log(), process.log("engine"), process.log("horovod")
    for step in range(3):
        op, base = step + 1, 1000 * (step + 1)
        python.push(op, base, base + 1, name=1, step=-1)
        engine.ready(op, base + 2, base + 3)
        horovod.mpi(raw.ALLREDUCE, base + 10, base + 20, bytes_=100, op=0, number=step)
        horovod.done(op, base + 21)
    process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    steps = trace.query("select distinct step from events where kind = 'done' order by step")
    assert steps["step"].tolist() == [0, 1, 2]
    assert any("no Gluon trainer" in note for note in trace.meta.notes)


def test_the_slow_path_is_control_and_a_broadcast_is_not(recording, tmp_path):
    process = recording()
    horovod = process.log("horovod")
    horovod.control(0, 5)
    horovod.mpi(raw.GATHER, 10, 11, bytes_=4, type_=14)
    horovod.mpi(raw.GATHERV, 12, 13, bytes_=99, type_=1)
    horovod.mpi(raw.BCAST, 14, 15, bytes_=4, type_=14)
    horovod.mpi(raw.BCAST, 16, 17, bytes_=120, type_=1)
    horovod.mpi(raw.BCAST, 20, 30, bytes_=4000, type_=17)
    process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    assert len(rows(trace, "kind = 'negotiate'")) == 5
    assert rows(trace, "kind = 'broadcast'") == [("broadcast", None, 0, 4000, 20, 30)]


def test_the_rank_that_was_last_to_queue_a_tensor_is_named_across_clocks(recording, tmp_path):
    shift = 10**12  # the second host's clock
    for rank, base in ((0, 0), (1, shift)):
        process = with_names(recording(rank=rank, host=f"h{rank}", size=2))
        python, engine, horovod = process.log(), process.log("engine"), process.log("horovod")
        python.push(1, base + 100, base + 101, name=1, step=0)
        engine.ready(1, base + 200 + 50 * rank, base + 205 + 50 * rank)
        for number in range(3):
            at = base + 300 + 100 * number
            horovod.control(at, at + 10, number=number)
        horovod.mpi(raw.ALLREDUCE, base + 620, base + 650, bytes_=100, op=0, number=3)
        horovod.done(1, base + 660)
        process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    peers = trace.query("select distinct peer from events where kind = 'negotiate' and tensor is not null")
    assert peers["peer"].tolist() == ["rank 1"]
    assert abs(trace.meta.hosts[1].clock_offset_ns + shift) <= trace.meta.hosts[1].clock_uncertainty_ns


def test_a_lane_is_a_process_of_its_own(recording, tmp_path):
    process = with_names(recording())
    log = one_step(process)
    log.add(raw.LANE, 355, 370, 2 | 1 << 12, 150, 4711)
    log.add(raw.LANE, 370, 395, 2 | 2 << 12, 150, 4711)
    process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    table = trace.query("select kind, lane, process, bytes, step, t_start_ns from events where rank is null "
                        "order by t_start_ns")  # fmt: skip
    assert list(table.itertuples(index=False, name=None)) == [
        ("lane_reduce_scatter", 2, 4711, 150, 0, 355),
        ("lane_allgather", 2, 4711, 150, 0, 370),
    ]
