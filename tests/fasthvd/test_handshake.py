"""A lane program alone, with a leader and ring neighbours played by the test: who may join a ring."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from vsketchdlc.fasthvd.protocol import Cause
from vsketchdlc.fasthvd.settings import LANE_PROGRAM

TOKEN = bytes(range(16))
HELLO = struct.Struct("<IIHHHHQQ")
MAGIC, PROTOCOL = 0x48564846, 1
SAY_HELLO, SAY_CHALLENGE, SAY_PROOF = 1, 2, 3
CONFIG, ATTACH, READY, FAILED = 1, 2, 3, 6
CONTROL = struct.Struct("<II40sQQ16sII16s256s")
LANE, HOSTS = 3, 2
SECOND = 10**9


def siphash(key: bytes, data: bytes) -> int:
    """SipHash-2-4, written from its paper, apart from the C code."""
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & mask

    def rounds(n: int) -> None:
        for _ in range(n):
            v[0] = (v[0] + v[1]) & mask
            v[2] = (v[2] + v[3]) & mask
            v[1], v[3] = rotate(v[1], 13) ^ v[0], rotate(v[3], 16) ^ v[2]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[1]) & mask
            v[0] = (v[0] + v[3]) & mask
            v[1], v[3] = rotate(v[1], 17) ^ v[2], rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_siphash_of_the_paper():
    assert siphash(TOKEN, bytes(range(15))) == 0xA129CA6149BE45E5


def address(sock: socket.socket) -> bytes:
    host, port = sock.getsockname()
    packed = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host)
    return packed.ljust(128, b"\0")


def say(
    kind: int,
    nonce: int,
    mac: int = 0,
    lane: int = LANE,
    protocol: int = PROTOCOL,
    magic: int = MAGIC,
    host: int = 1,
) -> bytes:
    return HELLO.pack(magic, protocol, kind, lane, host, HOSTS, nonce, mac)


def mac(kind: int, from_host: int, connecting: int, accepting: int, token: bytes = TOKEN) -> int:
    return siphash(token, struct.pack("<IIIIQQ", kind, LANE, from_host, HOSTS, connecting, accepting))


class Leader:
    """Leader of host 0 with one local rank; the test also plays host 1, on both sides of the lane."""

    def __init__(self, stack: ExitStack, setup_s: float = 10.0) -> None:
        def keep(thing: socket.socket) -> socket.socket:
            return stack.enter_context(thing)

        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control, theirs = keep(pair[0]), keep(pair[1])
        self.listener = keep(socket.create_server(("127.0.0.1", 0)))  # the lane's
        self.next_listener = keep(socket.create_server(("127.0.0.1", 0)))  # host 1's
        self.next_listener.settimeout(10)
        rank = [keep(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
        result, board, data = (os.memfd_create(name) for name in ("result", "board", "input"))
        os.truncate(board, 64 * 256)
        actions = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
        spawned = os.posix_spawn(
            str(LANE_PROGRAM),
            ["fasthvd-lane"],
            {},
            file_actions=[*actions, (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)],
        )
        os.waitpid(spawned, 0)
        limits = struct.pack("<qqqq", round(setup_s * SECOND), SECOND, SECOND, SECOND)
        names = b"".join(name.ljust(64, b"\0") for name in (b"host0", b"host1", b"host1"))
        config = (
            struct.pack("<IIIIII", CONFIG, PROTOCOL, LANE, 0, HOSTS, 1) + limits + struct.pack("<II", 0, 0)
        )
        config += TOKEN + names + address(self.listener) + address(self.next_listener)
        socket.send_fds(self.control, [config], [result, board, self.listener.fileno()])
        attach = CONTROL.pack(ATTACH, 0, b"", 0, 0, b"", 0, os.getpid(), b"", b"")
        socket.send_fds(self.control, [attach], [rank[0].fileno(), data])
        self.port = self.listener.getsockname()[1]
        for fd in (result, board, data):
            os.close(fd)
        rank[0].close()
        theirs.close()
        self.listener.close()  # the lane has its own; the test must not keep it open
        self.control.settimeout(15)

    def answer(self) -> tuple[int, Cause, str]:
        """READY, or FAILED with cause and text."""
        fields = CONTROL.unpack(self.control.recv(CONTROL.size))
        return fields[0], Cause(fields[1]), fields[-1].rstrip(b"\0").decode()

    def connect(self) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        peer.settimeout(10)
        return peer

    def accept(self) -> socket.socket:
        peer, _ = self.next_listener.accept()
        peer.settimeout(10)
        return peer


@pytest.fixture
def leader() -> Iterator[Leader]:
    with ExitStack() as stack:
        yield Leader(stack)


def read(peer: socket.socket) -> tuple:
    data = b""
    while len(data) < HELLO.size:
        got = peer.recv(HELLO.size - len(data))
        if not got:
            raise ConnectionError("closed")
        data += got
    return HELLO.unpack(data)


def join_as_next(leader: Leader) -> socket.socket:
    """Plays host 1's lane that this one connects to."""
    peer = leader.accept()
    nonce = read(peer)[6]
    peer.sendall(say(SAY_CHALLENGE, 55, mac(SAY_CHALLENGE, 0, nonce, 55), host=0))
    assert read(peer)[7] == mac(SAY_PROOF, 0, nonce, 55)
    return peer


def join_as_previous(leader: Leader) -> socket.socket:
    """Plays host 1's lane that connects to this one."""
    peer = leader.connect()
    peer.sendall(say(SAY_HELLO, 77))
    _, _, kind, _, _, _, nonce, proof = read(peer)
    assert (kind, proof) == (SAY_CHALLENGE, mac(SAY_CHALLENGE, 1, 77, nonce))
    peer.sendall(say(SAY_PROOF, nonce, mac(SAY_PROOF, 1, 77, nonce)))
    return peer


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_both_neighbours_prove_the_token(leader):
    with join_as_next(leader), join_as_previous(leader):
        assert leader.answer()[0] == READY
        with pytest.raises(ConnectionRefusedError):
            leader.connect()  # the listening socket closes with the ring


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: a-port-scanner.example\r\n\r\n",
        say(SAY_HELLO, 1, magic=1),
        say(SAY_HELLO, 1, protocol=99),
        say(SAY_HELLO, 1, lane=LANE + 1),
        say(SAY_HELLO, 1, host=0),
        say(SAY_PROOF, 1),
    ],
    ids=["http", "magic", "version", "lane", "host", "kind"],
)
def test_a_stranger_is_sent_away_and_the_ring_still_forms(leader, greeting):
    with leader.connect() as stranger:
        stranger.sendall(greeting)
        assert is_closed(stranger)
    with join_as_next(leader), join_as_previous(leader):
        assert leader.answer()[0] == READY


def test_a_wrong_token_is_sent_away(leader):
    with leader.connect() as thief:
        thief.sendall(say(SAY_HELLO, 77))
        nonce = read(thief)[6]
        thief.sendall(say(SAY_PROOF, nonce, mac(SAY_PROOF, 1, 77, nonce, token=bytes(16))))
        assert is_closed(thief)
    with join_as_next(leader), join_as_previous(leader):
        assert leader.answer()[0] == READY


def test_half_a_handshake_and_many_silent_strangers_do_not_block(leader):
    with ExitStack() as stack:
        half = stack.enter_context(leader.connect())
        half.sendall(say(SAY_HELLO, 5)[:20])
        for _ in range(40):
            stack.enter_context(leader.connect())
        stack.enter_context(join_as_next(leader))
        stack.enter_context(join_as_previous(leader))
        assert leader.answer()[0] == READY


def test_strangers_that_reset_their_connection(leader):
    """At once, and in the middle of the handshake."""
    for beginning in (b"", say(SAY_HELLO, 5)[:20], say(SAY_HELLO, 5)):
        stranger = leader.connect()
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stranger.sendall(beginning)
        stranger.close()
    with join_as_next(leader), join_as_previous(leader):
        assert leader.answer()[0] == READY


def test_a_next_host_that_resets_is_named(leader):
    peer = leader.accept()
    read(peer)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    kind, cause, text = leader.answer()
    assert (kind, cause) == (FAILED, Cause.FLOW_CLOSED)  # no stranger: its own lane knows better why
    assert "host1" in text


def test_a_port_answered_by_a_stranger_is_named(leader):
    peer = leader.accept()
    peer.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n and more of the same")
    kind, cause, text = leader.answer()
    assert (kind, cause) == (FAILED, Cause.STRANGER)
    assert "host1" in text


def test_a_next_host_without_the_token_is_a_stranger(leader):
    peer = leader.accept()
    nonce = read(peer)[6]
    peer.sendall(say(SAY_CHALLENGE, 55, mac(SAY_CHALLENGE, 0, nonce, 55, token=bytes(16)), host=0))
    assert leader.answer()[:2] == (FAILED, Cause.STRANGER)


def test_a_host_that_never_connects_is_named_in_time():
    with ExitStack() as stack:
        leader = Leader(stack, setup_s=0.3)
        with join_as_next(leader):
            kind, cause, text = leader.answer()
            assert (kind, cause) == (FAILED, Cause.HANDSHAKE)
            assert "host1" in text and "--ports" in text


def test_a_lane_ends_with_its_leader():
    with ExitStack() as stack:
        leader = Leader(stack)
        with join_as_next(leader) as peer:
            leader.control.close()
            begin = time.monotonic()
            assert is_closed(peer)
            assert time.monotonic() - begin < 5


def test_started_by_hand_it_says_so():
    done = subprocess.run(
        [LANE_PROGRAM], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "vsketchdlc run" in done.stderr


def test_the_lane_keeps_nothing_of_its_starter(leader):
    with join_as_next(leader), join_as_previous(leader):
        leader.answer()
        own = [entry for entry in Path("/proc").glob("[0-9]*") if _is_lane_of_this_test(entry)]
        assert len(own) == 1
        assert (own[0] / "environ").read_bytes() == b""
        assert (own[0] / "cwd").readlink() == Path("/")
        links = {str(fd.readlink()) for fd in (own[0] / "fd").iterdir()}
        allowed = ("/memfd:", "socket:", "anon_inode:", "/dev/null")
        assert not [link for link in links if not link.startswith(allowed)]


def _is_lane_of_this_test(entry: Path) -> bool:
    try:
        return (entry / "comm").read_text() == "fasthvd-lane\n" and any(
            str(fd.readlink()).startswith("/memfd:board") for fd in (entry / "fd").iterdir()
        )
    except OSError:
        return False
