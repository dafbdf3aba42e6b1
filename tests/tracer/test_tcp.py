"""TCP records of both ends: flows, messages matched by offset, clocks from them."""

import numpy as np
import pytest
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.decode.convert import convert

LEFT, RIGHT = "10.0.0.1:1024", "10.0.0.2:3300"
SHIFT = 10**12  # the second host's clock runs this much ahead


def connect(log, number, own, peer, *, library="libopen-pal.so.80", middle=False):
    text = f"{own} {peer} {library}".encode()
    words = np.frombuffer(text.ljust(-(-len(text) // 8) * 8, b"\0"), dtype="<u8")
    for part, word in enumerate(words):
        log.add(raw.CONN, 1, 1, number, int(word), part)
        flags = raw.FLAG_END * (part == len(words) - 1) | raw.FLAG_MIDDLE * middle
        log.records[-1] = (*log.records[-1][:3], flags, *log.records[-1][4:])


def send(log, start, end, offset, count, number=0):
    log.add(raw.SEND, start, end, number, offset, count)


def receive(log, start, end, offset, count, number=0):
    log.add(raw.RECV, start, end, number, offset, count)


@pytest.fixture
def ends(recording):
    """Logs of two ranks on two hosts with one connection between them."""
    logs = []
    for rank, (own, peer) in enumerate([(LEFT, RIGHT), (RIGHT, LEFT)]):
        process = recording(rank=rank, host=f"h{rank}", size=2)
        log = process.log("horovod")
        connect(log, 0, own, peer)
        logs.append((process, log))
    return logs


def trace_of(ends, recording, tmp_path):
    for process, _ in ends:
        process.write()
    return convert(raw.read_recording(recording.folder), tmp_path / "trace", [])


def test_a_message_in_two_pieces_is_matched_by_its_first_byte(ends, recording, tmp_path):
    (_, left), (_, right) = ends
    send(left, 1000, 1100, 0, 300)
    receive(right, SHIFT + 1040, SHIFT + 1060, 0, 100)
    receive(right, SHIFT + 1200, SHIFT + 1250, 100, 200)
    send(right, SHIFT + 2000, SHIFT + 2010, 0, 50)
    receive(left, 2030, 2060, 0, 50)
    trace = trace_of(ends, recording, tmp_path)
    host = trace.meta.hosts[1]
    # 1000 + d = 1060 there and 2000 + d = 2060 back: the clock is exactly in the middle.
    assert host.clock_offset_ns == -SHIFT
    assert host.clock_uncertainty_ns == 60
    table = trace.flows()
    assert table["flow"].tolist() == [f"{LEFT}>{RIGHT}", f"{RIGHT}>{LEFT}"]
    assert table["bytes"].tolist() == [300, 50]
    assert table[["sender", "receiver"]].to_numpy().tolist() == [[0, 1], [1, 0]]
    assert np.allclose(table["delay_min_s"], 60e-9)


def test_a_lost_stretch_is_not_matched(ends, recording, tmp_path):
    (_, left), (_, right) = ends
    send(left, 1000, 1100, 0, 100)
    receive(right, 5000, 5010, 500, 100)
    trace = trace_of(ends, recording, tmp_path)
    assert trace.flows()["messages"].isna().all()


def test_no_message_back_is_no_clock_and_is_told(ends, recording, tmp_path):
    (_, left), (_, right) = ends
    send(left, 1000, 1100, 0, 100)
    receive(right, 5000, 5010, 0, 100)
    trace = trace_of(ends, recording, tmp_path)
    assert trace.meta.hosts[1].clock_offset_ns is None
    assert any("cannot be aligned" in note for note in trace.meta.notes)
    assert len(trace.stragglers()) == 0


def test_a_connection_that_is_older_than_the_recording_is_not_matched(recording, tmp_path):
    logs = []
    for rank, (own, peer) in enumerate([(LEFT, RIGHT), (RIGHT, LEFT)]):
        process = recording(rank=rank, host=f"h{rank}", size=2)
        connect(process.log("horovod"), 0, own, peer, middle=True)
        logs.append((process, process.logs[0]))
    send(logs[0][1], 1000, 1100, 0, 100)
    receive(logs[1][1], 1000, 1100, 0, 100)
    send(logs[1][1], 1200, 1210, 0, 100)
    receive(logs[0][1], 1200, 1220, 0, 100)
    assert trace_of(logs, recording, tmp_path).meta.hosts[1].clock_offset_ns is None


def test_a_third_host_is_aligned_through_the_second(recording, tmp_path):
    processes = [recording(rank=rank, host=f"h{rank}", size=3) for rank in range(3)]
    logs = [process.log("horovod") for process in processes]
    shifts = [0, SHIFT, -SHIFT]
    for one, other in ((0, 1), (1, 2)):
        number = {0: 0, 1: other - 1, 2: 0}
        names = f"10.0.0.{one}:1", f"10.0.0.{other}:{other}"
        connect(logs[one], number[one], *names)
        connect(logs[other], 0, *reversed(names))
        send(logs[one], shifts[one] + 1000, shifts[one] + 1010, 0, 10, number[one])
        receive(logs[other], shifts[other] + 1000, shifts[other] + 1040, 0, 10, 0)
        send(logs[other], shifts[other] + 3000, shifts[other] + 3010, 0, 10, 0)
        receive(logs[one], shifts[one] + 3000, shifts[one] + 3040, 0, 10, number[one])
    for process in processes:
        process.write()
    trace = convert(raw.read_recording(recording.folder), tmp_path / "trace", [])
    assert [host.clock_offset_ns for host in trace.meta.hosts] == [0, -SHIFT, SHIFT]


def test_kernel_samples_and_processor_time(ends, recording, tmp_path):
    (_, left), _ = ends
    left.mpi(raw.BARRIER, 5, 6)
    left.add(raw.TCP_INFO, 1000, 1000 + 3, 0, 250 | 10 << 32, 125_000_000)
    for at, run, wait in ((1_000_000, 0, 0), (2_000_000, 500_000, 250_000)):
        left.add(raw.THREAD_RUN, at, at + left.tid, 0, run, wait)
    samples = trace_of(ends, recording, tmp_path).samples()
    values = {(row.subject, row.name): row.value for row in samples.itertuples()}
    flow = f"{LEFT}>{RIGHT}"
    assert values[flow, "tcp_rtt_s"] == pytest.approx(250e-6)
    assert values[flow, "tcp_window_segments"] == 10
    assert values[flow, "tcp_retransmits"] == 3
    assert values[flow, "tcp_delivery_bits_per_s"] == 1e9
    assert values["horovod", "on_core_cores"] == 0.5
    assert values["horovod", "run_queue_wait_cores"] == 0.25
