"""One emulated host as its lab's owner holds it: its first process, its sockets, its wire, its commands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...errors import UserError
from .network import NamespaceLink, Wire

_START_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 10.0
_SOCKETS = 3
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class HostConfig:
    """What keeper.py needs to become a host. Paths are the machine's own; times are nanoseconds."""

    name: str
    socket: str
    tmp: str
    hosts_file: str
    shared: list[str]
    cgroup_files: list[str]
    clock_offset_ns: int


@dataclass(frozen=True)
class HostProcess:
    """A process that runs in a host, with its numbers as the host sees them."""

    pid: int
    parent: int
    session: int
    state: str
    name: str
    argv: tuple[str, ...]


class StartingHost:
    """A host that is being made; several can be made at the same time."""

    def __init__(self, config: HostConfig, owner_pidfd: int) -> None:
        self.config = config
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "keeper.py"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), owner_pidfd),
                start_new_session=True,
                cwd="/",
            )
        message = {**config.__dict__, "owner_pidfd": owner_pidfd}
        with contextlib.suppress(BrokenPipeError):  # Then `ready` reads why.
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def ready(self) -> Host:
        """Wait until the host's first process is ready; raises UserError with the reason when it cannot start."""
        name = self.config.name
        self.control.settimeout(_START_TIMEOUT_S)
        heard, pid = b"", 0
        fds: list[int] = []
        try:
            while not (pid and len(fds) == _SOCKETS):
                piece, received, flags, _ = socket.recv_fds(self.control, 65536, 8)
                fds += received
                if flags & socket.MSG_CTRUNC:
                    raise UserError("lab: too many open files; raise the limit (ulimit -n) and try again")
                *lines, heard = (heard + piece).split(b"\n")
                for line in lines:
                    answer = json.loads(line)
                    if "error" in answer:
                        raise UserError(f"lab: {name} cannot start: {answer['error']}")
                    pid = answer.get("pid", pid)
                if not piece:
                    raise UserError(f"lab: {name} cannot start: its first process ended")
        except TimeoutError:
            raise UserError(
                f"lab: {name} did not start within {_START_TIMEOUT_S:g} s; is the machine overloaded?"
            ) from None
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        route, raw, diag = (socket.socket(fileno=fd) for fd in fds)
        raw.settimeout(_ANSWER_TIMEOUT_S)
        diag.settimeout(_ANSWER_TIMEOUT_S)
        return Host(self, pid, NamespaceLink(route, raw), diag)

    def abandon(self) -> None:
        """End what has been started."""
        _end(self.control, self.process, None)


class Host:
    """A running host. `pid` is its first process as the machine sees it; `wire` is there once it is joined."""

    def __init__(self, started: StartingHost, pid: int, link: NamespaceLink, diag: socket.socket) -> None:
        self.name = started.config.name
        self.pid = pid
        self.link = link
        self.diag = diag
        self.wire: Wire | None = None
        self._address = started.config.socket
        self._process = started.process
        self._control = started.control

    def start(
        self,
        argv: Sequence[str | Path],
        env: Mapping[str, str],
        cwd: str | Path | None,
        streams: tuple[int | IO[Any] | None, int | IO[Any] | None, int | IO[Any] | None],
        **popen: Any,
    ) -> subprocess.Popen[str]:
        """Start a command; the Popen is an agent's (agent.py) that stands for it."""
        agent = [sys.executable, "-I", "-S", str(_HERE / "agent.py"), "run", self._address]
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [*agent, *map(str, argv)],
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            **popen,
        )

    def processes(self) -> list[HostProcess]:
        """What runs in the host now, its first process left out."""
        found = self._ask({"list": True})["processes"]
        return [HostProcess(**{**process, "argv": tuple(process["argv"])}) for process in found]

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the host but its first."""
        self._ask({"signal_all": number})

    def end(self) -> None:
        """End the host: the kernel kills what runs in it and removes its namespaces. May be called twice."""
        self.link.close()
        self.diag.close()
        _end(self._control, self._process, self.pid)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(request).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_ANSWER_TIMEOUT_S)
                client.connect(self._address)
                client.sendall(len(body).to_bytes(4, "big") + body)
                answer: dict[str, Any] = json.loads(client.makefile("rb").readline())
        except (OSError, ValueError) as error:
            raise UserError(f"lab: {self.name} does not answer ({error}); has it ended?") from None
        return answer


def _end(control: socket.socket, process: subprocess.Popen[bytes], pid: int | None) -> None:
    """Tell the first process to go. Shut down, not just closed: a fork of the owner may hold the socket too."""
    with contextlib.suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    control.close()
    try:
        process.wait(timeout=_ANSWER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
