"""The lanes' ring protocol as a state machine: the same states, frames and rules as native/common/ring.c.

It knows no sockets, no memory and no clock: the caller moves bytes and tells how many. The C machine moves the real
data; this one is to read, to test against (both are driven side by side) and to simulate. The page that says the
whole protocol is native/common/protocol.h.

The n elements are cut into H segments (one a host), each segment into the lanes' slices, each slice into chunks. In
step t (0 <= t < 2H-2) host h sends segment (h-t) mod H and receives segment (h-t-1) mod H. In the first H-1 steps a
received chunk is combined with the host's own elements, later it is kept. A chunk may be sent when the same chunk of
the step before has been received.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

MAGIC = 0x4C564846
SHARE_WHOLE = 65536
ELEMENTS_ALIGN = 16
FRAME = struct.Struct("<IHHIIIIIBBHQQIIII")
ELEMENT_BYTES = (1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8)


class LaneState(IntEnum):
    """States of a lane process (enum lane_state)."""

    STARTING = 0
    CONNECTING = 1
    IDLE = 2
    GATHERING = 3
    RUNNING = 4
    FAILED = 5


class RingState(IntEnum):
    """States of the ring machine (enum ring_state)."""

    IDLE = 0
    ARRIVING = 1
    RUNNING = 2
    FINISHED = 3
    FAILED = 4


class Cause(IntEnum):
    """Why something failed, most telling last (enum cause)."""

    NONE = 0
    FLOW_CLOSED = 1
    SILENT = 2
    HANDSHAKE = 3
    SYSTEM = 4
    STRANGER = 5
    STOPPED = 6
    DIED = 7
    MISMATCH = 8


class FrameKind(IntEnum):
    """Kinds of frames (enum frame_kind)."""

    ARRIVE = 1
    CHUNK = 2


class ActionKind(IntEnum):
    """What to do with a whole received chunk (enum ring_action_kind)."""

    NONE = 0
    REDUCE = 1
    KEEP = 2


@dataclass(frozen=True)
class Job:
    """What is summed: `count` elements of type number `type`; the lane's share is [lo, hi) of 65536."""

    sequence: int
    count: int
    type: int = 9
    op: int = 0
    share_lo: int = 0
    share_hi: int = SHARE_WHOLE
    chunk_bytes: int = 256 << 10
    comm: int = 0

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.type]

    def slice(self, hosts: int, segment: int) -> range:
        """Elements of this lane in segment `segment`."""
        first, last = self.count * segment // hosts, self.count * (segment + 1) // hosts
        return range(
            first + _edge(last - first, self.share_lo),
            first + _edge(last - first, self.share_hi),
        )

    def chunks(self, hosts: int, segment: int) -> list[range]:
        """The slice in the pieces in which it travels."""
        part = self.slice(hosts, segment)
        step = max(self.chunk_bytes // self.width, 1)
        return [part[at : at + step] for at in range(0, len(part), step)]


def _edge(length: int, share: int) -> int:
    return (
        length if share >= SHARE_WHOLE else length * share // SHARE_WHOLE // ELEMENTS_ALIGN * ELEMENTS_ALIGN
    )


@dataclass(frozen=True)
class Frame:
    """A frame's header; `payload_bytes` follow it."""

    kind: FrameKind
    job: Job
    origin: int = 0
    step: int = 0
    chunk: int = 0
    payload_bytes: int = 0

    def pack(self) -> bytes:
        """The 64 bytes on the wire."""
        job = self.job
        where = (MAGIC, self.kind, self.origin, self.step, self.chunk, self.payload_bytes, 0)
        what = (job.comm, job.type, job.op, 0, job.sequence, job.count)
        return FRAME.pack(*where, *what, job.share_lo, job.share_hi, job.chunk_bytes, 0)

    @classmethod
    def unpack(cls, data: bytes) -> Frame | None:
        """The frame, or None when the bytes are none."""
        magic, kind, origin, step, chunk, size, _, comm, type_, op, _, sequence, count, low, high, most, _ = (
            FRAME.unpack(data)
        )
        if magic != MAGIC or kind not in (1, 2):
            return None
        return cls(
            FrameKind(kind), Job(sequence, count, type_, op, low, high, most, comm), origin, step, chunk, size
        )


@dataclass(frozen=True)
class Wanted:
    """The next bytes of a stream: `head` header bytes, `size` payload bytes at byte `offset` of the vector.

    Receiving: payload first, then the next header. Sending: header first; `own` says that the payload is the
    host's own input (step 0), else it lies in the result.
    """

    head: int
    offset: int
    size: int
    own: bool = False


@dataclass(frozen=True)
class Action:
    """REDUCE or KEEP the chunk of `size` bytes at byte `offset`."""

    kind: ActionKind
    offset: int = 0
    size: int = 0


@dataclass
class Ring:
    """The machine of one lane on host number `host` of `hosts`."""

    host: int
    hosts: int
    state: RingState = RingState.IDLE
    cause: Cause = Cause.NONE
    text: str = ""
    _job: Job = field(default_factory=lambda: Job(0, 0))
    _in_head: bytearray = field(default_factory=bytearray)
    _in_left: int = 0
    _in_at: int = 0
    _to_receive: deque[tuple[int, int, range]] = field(default_factory=deque)
    _received: set[tuple[int, int]] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)
    _to_send: deque[tuple[int, int, range]] = field(default_factory=deque)
    _forward: deque[int] = field(default_factory=deque)
    _out: Frame | None = None
    _out_left: int = 0

    def begin(self, job: Job) -> None:
        """IDLE -> ARRIVING."""
        self.state, self._job = RingState.ARRIVING, job
        self._to_receive = deque(self._plan(1))
        self._to_send = deque(self._plan(0))
        self._received, self._seen = set(), set()
        self._forward = deque([self.host] if self.hosts > 1 else [])
        self._check_arrived()
        if len(self._in_head) == FRAME.size:
            self._take_head()
        self._check_finished()

    def _plan(self, back: int) -> Iterator[tuple[int, int, range]]:
        for step in range(2 * (self.hosts - 1)):
            for number, part in enumerate(
                self._job.chunks(self.hosts, (self.host - step - back) % self.hosts)
            ):
                yield step, number, part

    @property
    def _active(self) -> bool:
        return self.state in (RingState.ARRIVING, RingState.RUNNING)

    @property
    def _receiving_done(self) -> bool:
        return not self._to_receive and len(self._seen) == self.hosts - 1

    def want_receive(self) -> Wanted | None:
        """Where the next received bytes go; None: nothing is wanted now."""
        if not self._active or (self._in_left == 0 and self._receiving_done):
            return None
        return Wanted(FRAME.size - len(self._in_head), self._in_at, self._in_left)

    def received(self, size: int, head: bytes) -> Action:
        """`size` bytes came in; those beyond the payload are `head`."""
        action = Action(ActionKind.NONE)
        payload = min(size, self._in_left)
        if payload:
            self._in_left -= payload
            self._in_at += payload
            if self._in_left == 0:
                step, number, part = self._to_receive.popleft()
                self._received.add((step, number))
                kind = ActionKind.REDUCE if step < self.hosts - 1 else ActionKind.KEEP
                action = Action(kind, part.start * self._job.width, len(part) * self._job.width)
        self._in_head += head
        if len(self._in_head) == FRAME.size and not self._receiving_done:
            self._take_head()
        self._check_finished()
        return action

    def _take_head(self) -> None:
        frame = Frame.unpack(bytes(self._in_head))
        self._in_head.clear()
        if frame is None:
            self.fail(Cause.STRANGER, "the previous host sent bytes that are no frame")
        elif frame.job != self._job:
            self.fail(Cause.MISMATCH, f"{self._job} here, {frame.job} on the previous host")
        elif frame.kind is FrameKind.ARRIVE:
            self._take_arrive(frame)
        else:
            self._take_chunk(frame)

    def _take_arrive(self, frame: Frame) -> None:
        origin = frame.origin
        if origin >= self.hosts or origin == self.host or origin in self._seen or frame.payload_bytes:
            self.fail(Cause.STRANGER, f"the previous host sent an impossible arrival of host number {origin}")
            return
        self._seen.add(origin)
        if origin != (self.host + 1) % self.hosts:
            self._forward.append(origin)
        self._check_arrived()

    def _take_chunk(self, frame: Frame) -> None:
        step, number, part = self._to_receive[0] if self._to_receive else (-1, -1, range(0))
        if (frame.step, frame.chunk) != (step, number):
            self.fail(
                Cause.STRANGER, f"chunk {frame.chunk} of step {frame.step}, expected {number} of {step}"
            )
        elif frame.payload_bytes != len(part) * self._job.width:
            self.fail(
                Cause.STRANGER,
                f"a chunk of {frame.payload_bytes} bytes, expected {len(part) * self._job.width}",
            )
        else:
            self._in_at, self._in_left = part.start * self._job.width, frame.payload_bytes

    def want_send(self) -> Wanted | None:
        """What can be sent next; None: nothing now."""
        if not self._active:
            return None
        if self._out_left == 0:
            self._out = self._next_frame()
            if self._out is None:
                return None
            self._out_left = FRAME.size + self._out.payload_bytes
        assert self._out is not None
        head = max(self._out_left - self._out.payload_bytes, 0)
        size = self._out_left - head
        first = self._to_send[0][2].start * self._job.width if self._out.payload_bytes else 0
        return Wanted(
            head,
            first + self._out.payload_bytes - size,
            size,
            bool(self._out.payload_bytes) and self._out.step == 0,
        )

    def head_to_send(self) -> bytes:
        """The header bytes of the frame under way that have not been sent."""
        assert self._out is not None
        head = max(self._out_left - self._out.payload_bytes, 0)
        return self._out.pack()[FRAME.size - head :]

    def _next_frame(self) -> Frame | None:
        if self._forward:
            return Frame(FrameKind.ARRIVE, self._job, origin=self._forward.popleft())
        if not self._to_send:
            return None
        step, number, part = self._to_send[0]
        if step > 0 and (step - 1, number) not in self._received:
            return None
        return Frame(
            FrameKind.CHUNK, self._job, step=step, chunk=number, payload_bytes=len(part) * self._job.width
        )

    def sent(self, size: int) -> None:
        """`size` bytes of what was wanted have gone."""
        assert self._out is not None
        self._out_left -= size
        if self._out_left == 0 and self._out.kind is FrameKind.CHUNK:
            self._to_send.popleft()
        self._check_finished()

    def fail(self, cause: Cause, text: str) -> None:
        """Any state -> FAILED; the first cause stays."""
        if self.state is not RingState.FAILED:
            self.state, self.cause, self.text = RingState.FAILED, cause, text

    def end(self) -> None:
        """FINISHED -> IDLE."""
        self.state = RingState.IDLE

    def _check_arrived(self) -> None:
        if self.state is RingState.ARRIVING and len(self._seen) == self.hosts - 1:
            self.state = RingState.RUNNING

    def _check_finished(self) -> None:
        busy = self._to_receive or self._to_send or self._forward or self._out_left
        if self.state is RingState.RUNNING and not busy:
            self.state = RingState.FINISHED
