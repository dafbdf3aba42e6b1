"""The launcher's side of a flow probe: hears the ranks, and has one of each host move bytes at the same time."""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from ..errors import UserError
from .flow_sockets import Moved, listener
from .host_facts import HostFacts

_ARRIVAL_S = 90.0
_ANSWER_S = 60.0
_SETTLE_S = 0.3
"""TCP's slow start, and the burst that a token bucket lets through at first."""


@dataclass(frozen=True)
class Heard:
    """One rank that said hello: its host, where it listens, and the lines to talk to it."""

    rank: int
    size: int
    facts: HostFacts
    addresses: list[str]
    port: int
    wire: socket.socket
    lines: IO[str]


class Coordinator:
    """Waits for all ranks, gives orders, hears their answers. Use as a context manager.

    ``plan(iface)`` is what the ranks need to find it.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._server = listener()
        self._heard: list[Heard] = []
        self._status: int | None = None
        self._rounds = 0

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._server.close()

    def plan(self, iface: str) -> str:
        """The content of FASTHVD_FLOW_PROBE: one line without ';', which Open MPI separates variables by."""
        addresses = [address for one in HostFacts.here().interfaces for address in one.addresses]
        addresses.append("127.0.0.1")
        port = self._server.getsockname()[1]
        return json.dumps(
            {"addresses": addresses, "port": port, "token": self._token, "iface": iface},
            separators=(",", ":"),
        )

    def launcher_ended(self, status: int) -> None:
        """Tell that no further rank will come."""
        self._status = status

    def gather(self) -> list[Heard]:
        """All ranks in their order. Raises UserError when they do not come."""
        deadline = time.monotonic() + _ARRIVAL_S
        while not self._heard or len(self._heard) < self._heard[0].size:
            if self._status is not None or time.monotonic() > deadline:
                raise UserError(self._who_is_missing())
            self._server.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                self._hear(self._server.accept()[0])
        self._heard.sort(key=lambda one: one.rank)
        return self._heard

    def _hear(self, wire: socket.socket) -> None:
        """Take one connection: token, then hello. A stranger's is closed."""
        wire.settimeout(_ANSWER_S)
        lines = wire.makefile("rw", encoding="utf-8", newline="\n")
        try:
            said = lines.readline(4096).strip()
            if not hmac.compare_digest(said.encode(), self._token.encode()):
                wire.close()
                return
            hello = json.loads(lines.readline())
        except (OSError, ValueError):
            wire.close()
            return
        facts = HostFacts.from_json(hello["facts"])
        self._heard.append(
            Heard(hello["rank"], hello["size"], facts, hello["addresses"], hello["port"], wire, lines)
        )

    def _who_is_missing(self) -> str:
        if not self._heard:
            how = "never came" if self._status is None else f"ended with status {self._status}"
            return (
                f"the probe's ranks {how} and none reached this host: does the command start when run alone, "
                "and is vsketchdlc installed at the same path on every host?"
            )
        there = {one.rank for one in self._heard}
        absent = [rank for rank in range(self._heard[0].size) if rank not in there]
        return f"rank {absent[0]} did not start or cannot reach this host; its messages are above"

    def move(self, leaders: Sequence[Heard], flows: int, seconds: float) -> list[Moved]:
        """`flows` connections from each leader to the next, all at once; raises UserError naming a broken pair."""
        self._rounds += 1
        token = f"{self._token}{self._rounds:04d}"
        for place, leader in enumerate(leaders):
            to = leaders[(place + 1) % len(leaders)]
            order = {"what": "flows", "flows": flows, "token": token, "addresses": to.addresses}
            self._tell(leader, {**order, "port": to.port, "settle_s": _SETTLE_S, "seconds": seconds})
        failures = []
        for place, leader in enumerate(leaders):
            answer = self._answer(leader)
            if answer["what"] == "failed":
                next_host = leaders[(place + 1) % len(leaders)].facts.name
                failures.append(f"{leader.facts.name} to {next_host}: {answer['why']}")
        if failures:
            raise UserError(f"{failures[0]}; is a firewall between, or another interface needed (--iface)?")
        for one in leaders:
            self._tell(one, {"what": "go"})
        answers = [self._answer(leader) for leader in leaders]
        return [
            Moved(**{name: value for name, value in answer.items() if name != "what"}) for answer in answers
        ]

    def end(self) -> None:
        """Let every rank leave; may be called again."""
        for one in self._heard:
            with contextlib.suppress(OSError, ValueError):
                self._tell(one, {"what": "end"})
                one.lines.close()
            one.wire.close()
        self._heard = []

    def _tell(self, one: Heard, message: dict[str, Any]) -> None:
        one.lines.write(json.dumps(message) + "\n")
        one.lines.flush()

    def _answer(self, one: Heard) -> dict[str, Any]:
        try:
            line = one.lines.readline()
        except OSError:
            line = ""
        if not line:
            raise UserError(f"the probe lost host {one.facts.name}; its messages are above")
        answer: dict[str, Any] = json.loads(line)
        return answer
