"""The ring machines in C and in Python, without a network: both are driven side by side through random orders of events."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vsketchdlc.fasthvd.protocol import (
    FRAME,
    ActionKind,
    Cause,
    Frame,
    FrameKind,
    Job,
    Ring,
    RingState,
)

COMMON = Path(__file__).parents[2] / "fasthvd" / "native" / "common"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("ring") / "ring.so"
    sources = [Path(__file__).parent / "ring_shim.c", COMMON / "ring.c", COMMON / "slices.c"]
    command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{COMMON}"]
    subprocess.run([*command, *map(str, sources), "-o", str(target)], check=True)
    loaded = ctypes.CDLL(str(target))
    loaded.shim_new.restype = ctypes.c_void_p
    return loaded


class Both:
    """One lane's machine in C and in Python; every answer of the one must be that of the other."""

    def __init__(self, library: ctypes.CDLL, host: int, hosts: int) -> None:
        self._c, self._ring = library, ctypes.c_void_p(library.shim_new(host, hosts))
        self.python = Ring(host, hosts)

    def close(self) -> None:
        self._c.shim_free(self._ring)

    def _agree(self) -> None:
        assert RingState(self._c.shim_state(self._ring)) is self.python.state
        assert Cause(self._c.shim_cause(self._ring)) is self.python.cause

    def begin(self, job: Job) -> None:
        numbers = (job.sequence, job.count, job.share_lo, job.share_hi, job.chunk_bytes)
        q, i = ctypes.c_uint64, ctypes.c_uint32
        kinds = (q, q, i, i, i)
        self._c.shim_begin(
            self._ring,
            i(job.comm),
            ctypes.c_uint8(job.type),
            ctypes.c_uint8(job.op),
            *(kind(number) for kind, number in zip(kinds, numbers, strict=True)),
        )
        self.python.begin(job)
        self._agree()

    def _want(self, ask: Callable[..., int], wanted) -> tuple | None:
        out = (ctypes.c_uint64 * 5)()
        assert bool(ask(self._ring, out)) == (wanted is not None)
        if wanted is None:
            return None
        assert (out[1], out[3]) == (wanted.head, wanted.size)
        assert wanted.size == 0 or (out[2], bool(out[4])) == (wanted.offset, wanted.own)
        return out[0], wanted

    def receive(self, stream: bytearray, most: int, put: Callable[[int, bytes], None]) -> tuple[int, object]:
        """Takes up to `most` bytes of the stream. How many, and what is to be done."""
        want = self._want(self._c.shim_want_receive, self.python.want_receive())
        self._agree()
        if want is None:
            return 0, None
        place, wanted = want
        size = min(most, len(stream), wanted.size + wanted.head)
        payload, head = bytes(stream[: min(size, wanted.size)]), bytes(stream[wanted.size : size])
        del stream[:size]
        put(wanted.offset, payload)
        ctypes.memmove(place, head, len(head))
        out = (ctypes.c_uint64 * 3)()
        self._c.shim_received(self._ring, ctypes.c_uint64(size), out)
        action = self.python.received(size, head)
        assert (out[0], out[1], out[2]) == (action.kind, action.offset, action.size)
        self._agree()
        return size, action

    def send(self, stream: bytearray, most: int, get: Callable[[int, int, bool], bytes]) -> int:
        """Puts up to `most` bytes on the stream."""
        want = self._want(self._c.shim_want_send, self.python.want_send())
        if want is None:
            return 0
        place, wanted = want
        head = ctypes.string_at(place, wanted.head)
        assert head == self.python.head_to_send()
        size = min(most, wanted.head + wanted.size)
        stream += (head + get(wanted.offset, wanted.size, wanted.own))[:size]
        self._c.shim_sent(self._ring, ctypes.c_uint64(size))
        self.python.sent(size)
        self._agree()
        return size

    def end(self) -> None:
        self._c.shim_end(self._ring)
        self.python.end()


class Host:
    """A host with one lane: int64 input and result, the stream that it reads."""

    def __init__(self, library: ctypes.CDLL, host: int, hosts: int) -> None:
        self.both = Both(library, host, hosts)
        self.stream = bytearray()
        self.input, self.result = np.zeros(0, "i8"), np.zeros(0, "i8")

    def put(self, offset: int, data: bytes) -> None:
        self.result.view("u1")[offset : offset + len(data)] = np.frombuffer(data, "u1")

    def get(self, offset: int, size: int, own: bool) -> bytes:
        return (self.input if own else self.result).view("u1")[offset : offset + size].tobytes()

    def receive(self, most: int) -> bool:
        size, action = self.both.receive(self.stream, most, self.put)
        if action is not None and action.kind is ActionKind.REDUCE:
            part = slice(action.offset // 8, (action.offset + action.size) // 8)
            self.result[part] += self.input[part]
        return size > 0


def run(library: ctypes.CDLL, hosts: int, jobs: list[Job], choices: Callable[[int], int], most: int) -> None:
    """All hosts do all jobs; `choices(n)` says who moves next and how many bytes. Checks the sums."""
    ring = [Host(library, number, hosts) for number in range(hosts)]
    todo = [list(jobs) for _ in ring]
    random = np.random.default_rng(1)
    inputs = {
        (host, job.sequence): random.integers(-99, 99, job.count) for host in range(hosts) for job in jobs
    }
    idle_turns = 0
    while any(todo) and idle_turns < 2000:
        number = choices(hosts)
        host, moved = ring[number], False
        state = host.both.python.state
        if state is RingState.IDLE and todo[number]:
            job = todo[number][0]
            host.input, host.result = inputs[number, job.sequence], np.full(job.count, 77_777)
            host.both.begin(job)
            moved = True
        elif state is RingState.FINISHED:
            job = todo[number].pop(0)
            want = sum(inputs[other, job.sequence] for other in range(hosts))
            for segment in range(hosts):
                part = job.slice(hosts, segment)
                assert np.array_equal(host.result[part.start : part.stop], want[part.start : part.stop])
            host.both.end()
            moved = True
        elif choices(2):
            moved = host.receive(1 + choices(most))
        else:
            moved = host.both.send(ring[(number + 1) % hosts].stream, 1 + choices(most), host.get) > 0
        idle_turns = 0 if moved else idle_turns + 1
    assert not any(todo), "the ring stands still"
    for host in ring:
        host.both.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hosts=st.integers(2, 5),
    counts=st.lists(st.integers(0, 900), min_size=1, max_size=3),
    edges=st.tuples(st.integers(0, 65536), st.integers(0, 65536)).map(sorted),
    chunk_bytes=st.sampled_from([1, 8, 24, 512, 1 << 20]),
    most=st.sampled_from([1, 70, 5000]),
    seed=st.integers(0, 2**32),
)
def test_every_order_of_events_gives_the_sum(library, hosts, counts, edges, chunk_bytes, most, seed):
    low, high = edges
    if chunk_bytes < 24 or most == 1:
        counts = [count // 20 for count in counts]
    jobs = [Job(number, count, 6, 0, low, high, chunk_bytes) for number, count in enumerate(counts, 1)]
    random = np.random.default_rng(seed)
    run(library, hosts, jobs, lambda n: int(random.integers(n)), most)


def frames_to(both: Both, *frames: Frame) -> Ring:
    """Feeds frame headers to a machine that is at work."""
    stream = bytearray(b"".join(frame.pack() for frame in frames))
    while stream and both.receive(stream, 1 << 20, lambda *_: None)[0]:
        pass
    return both.python


JOB = Job(1, 1000, 9, 0, 0, 65536, 4096)
ARRIVE = Frame(FrameKind.ARRIVE, JOB, origin=0)
CHUNK = Frame(FrameKind.CHUNK, JOB, step=0, chunk=0, payload_bytes=2000)


def at_work(library: ctypes.CDLL) -> Both:
    both = Both(library, 1, 2)
    both.begin(JOB)
    return both


def test_a_job_starts_arriving_and_runs_when_all_are_there(library):
    both = at_work(library)
    assert both.python.state is RingState.ARRIVING
    assert frames_to(both, ARRIVE).state is RingState.RUNNING


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, sequence=2),
        replace(JOB, count=1001),
        replace(JOB, type=4),
        replace(JOB, op=1),
        replace(JOB, comm=5),
        replace(JOB, share_hi=100),
        replace(JOB, chunk_bytes=8192),
    ],
)
def test_a_frame_of_another_job_is_a_mismatch(library, other):
    assert frames_to(at_work(library), replace(ARRIVE, job=other)).cause is Cause.MISMATCH


@pytest.mark.parametrize(
    "frames",
    [
        (replace(ARRIVE, origin=1),),
        (replace(ARRIVE, origin=9),),
        (ARRIVE, ARRIVE),
        (replace(ARRIVE, payload_bytes=4),),
        (ARRIVE, replace(CHUNK, chunk=1)),
        (ARRIVE, replace(CHUNK, step=1)),
        (ARRIVE, replace(CHUNK, payload_bytes=1999)),
        (ARRIVE, replace(CHUNK, payload_bytes=2**32 - 1)),
    ],
)
def test_an_impossible_frame_is_a_stranger(library, frames):
    assert frames_to(at_work(library), *frames).cause is Cause.STRANGER


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(min_size=FRAME.size, max_size=4 * FRAME.size))
def test_garbage_never_gets_through(library, garbage):
    both = at_work(library)
    stream = bytearray(garbage)
    while both.receive(stream, 1 << 20, lambda *_: None)[0]:
        pass
    assert both.python.cause is Cause.STRANGER


def test_an_early_frame_of_the_next_job_waits(library):
    both = at_work(library)
    frames_to(both, ARRIVE)
    stream = bytearray(CHUNK.pack() + bytes(2000) + replace(CHUNK, step=1).pack() + bytes(2000))
    after = Frame(FrameKind.ARRIVE, replace(JOB, sequence=2), origin=0).pack()
    stream += after
    while both.receive(stream, 1 << 20, lambda *_: None)[0]:
        pass
    while both.send(bytearray(), 1 << 20, lambda offset, size, own: bytes(size)):
        pass
    assert both.python.state is RingState.FINISHED
    assert not stream
    both.end()
    both.begin(replace(JOB, sequence=2))
    assert both.python.state is RingState.RUNNING


@given(
    count=st.integers(0, 10**6),
    hosts=st.integers(1, 9),
    inner=st.lists(st.integers(0, 65536), max_size=8),
)
def test_slices_cover_every_element_once(count, hosts, inner):
    edges = [0, *sorted(inner), 65536]
    at = 0
    for segment in range(hosts):
        for low, high in itertools.pairwise(edges):
            part = Job(1, count, share_lo=low, share_hi=high).slice(hosts, segment)
            assert part.start == at
            at = part.stop
    assert at == count
