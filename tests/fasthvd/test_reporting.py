"""Rank 0 brings its counters by TCP; a stranger who knows the port brings nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from vsketchdlc.fasthvd.reporting import Reports, own_addresses


@pytest.fixture
def reports() -> Iterator[Reports]:
    listening = Reports()
    listening.listen()
    yield listening
    listening.close()


def send(reports: Reports, data: bytes, half: bool = False) -> None:
    _, port, addresses = reports.variable.split("@")
    with socket.create_connection((addresses.split(",")[0], int(port)), timeout=5) as peer:
        peer.sendall(data)
        if half:
            return
        peer.shutdown(socket.SHUT_WR)
        try:
            peer.recv(1)  # closed when the report is taken
        except ConnectionResetError:
            return


def test_start_and_counters(reports):
    token = reports.variable.split("@")[0].encode()
    send(reports, token + b' start\n{"ranks":4}\n')
    send(reports, token + b" counters\n" + json.dumps({"carried": {"calls": 3}}).encode() + b"\n")
    assert (reports.ranks, reports.counters) == ([4], {"carried": {"calls": 3}})
    assert reports.started.is_set()


@pytest.mark.parametrize(
    "greeting",
    [b"GET / HTTP/1.1\r\n\r\n", b"", b"\xff\xfe" * 40, b"0" * 32 + b' start\n{"ranks":4}\n', b"0" * 100_000],
    ids=["http", "nothing", "binary", "token", "long"],
)
def test_strangers_are_not_listened_to(reports, greeting):
    send(reports, greeting)
    token = reports.variable.split("@")[0].encode()
    send(reports, token + b" counters\n{broken", half=True)
    send(reports, token + b' start\n{"ranks":2}\n')
    assert (reports.ranks, reports.counters) == ([2], None)


def test_nobody_listens_after_close():
    closed = Reports()
    _, port, addresses = closed.variable.split("@")
    closed.listen()
    closed.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((addresses.split(",")[0], int(port)), timeout=5)


def test_own_addresses_can_be_connected_to():
    for address in own_addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as mine:
            mine.bind((address, 0))
