"""Start an MXNet parameter-server job where the user has no launcher: workers, servers and the scheduler.

Worker i runs on host i, counted round and round; so do the servers; the scheduler is on the first host. A process on
another host is started through a remote shell, and ends when its connection does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ..errors import UserError
from .launcher import RankEnvironment, ends_with_us
from .remote import SSH

_END_S = 15.0
# Runs the command in the background and ends it when standard input closes, which happens when we are gone.
_TETHERED = "{line} & child=$!; (cat >/dev/null; kill $child 2>/dev/null) <&3 & watch=$!; wait $child; status=$?; kill $watch 2>/dev/null; exit $status"


@dataclass(frozen=True)
class KvJob:
    """How many workers and servers, on which hosts (the first is where this command runs)."""

    workers: int
    servers: int
    hosts: tuple[str, ...] = ("localhost",)
    shell: str = SSH

    @classmethod
    def parse(cls, text: str, hosts: str | None, shell: str) -> KvJob:
        """From ``--kvstore 2x1`` (workers x servers) and ``-H a,b``.

        Raises UserError when they are not understood.
        """
        found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
        if found is None:
            raise UserError(f"--kvstore '{text}' is not understood: write WORKERSxSERVERS, like 2x1")
        names = tuple(name.strip() for name in (hosts or "localhost").split(",") if name.strip())
        if not names:
            raise UserError(f"-H '{hosts}' names no host: write it like a,b,c")
        return cls(int(found.group(1)), int(found.group(2)), names, shell)

    @property
    def other_hosts(self) -> list[str]:
        """Hosts that are not this one, each once."""
        return [host for host in dict.fromkeys(self.hosts) if not is_here(host)]


def is_here(host: str) -> bool:
    """Whether `host` is this machine by its name."""
    return host in ("localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn())


@dataclass
class _Member:
    role: str
    process: subprocess.Popen[bytes]


@dataclass
class _Running:
    members: list[_Member] = field(default_factory=list)

    def end(self) -> None:
        for member in self.members:
            if member.process.stdin is not None:
                with contextlib.suppress(OSError):
                    member.process.stdin.close()
            if member.process.poll() is None:
                member.process.terminate()
        for member in self.members:
            try:
                member.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()


def run_kvstore_job(command: Sequence[str], job: KvJob, environment: RankEnvironment) -> int:
    """Run `command` as every worker of `job` and return the first status of a worker that is not 0.

    Servers and scheduler run ``import mxnet`` in the command's own Python. All get `environment`. When this function
    leaves, whatever the cause, all processes have been ended.
    """
    addresses = _addresses(job)
    common = {
        "DMLC_PS_ROOT_URI": addresses[job.hosts[0]],
        "DMLC_PS_ROOT_PORT": str(_free_port()),
        "DMLC_NUM_WORKER": str(job.workers),
        "DMLC_NUM_SERVER": str(job.servers),
    }
    python = command[0] if Path(command[0]).name.startswith("python") else sys.executable
    helper = [python, "-c", "import mxnet"]
    planned = [("scheduler", job.hosts[0], helper)]
    planned += [("server", job.hosts[i % len(job.hosts)], helper) for i in range(job.servers)]
    planned += [("worker", job.hosts[i % len(job.hosts)], list(command)) for i in range(job.workers)]
    running = _Running()
    old = {number: signal.signal(number, _raise_exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for role, host, words in planned:
            own = {**common, "DMLC_ROLE": role, "DMLC_NODE_HOST": addresses[host]}
            running.members.append(_Member(role, _start(words, host, job.shell, environment, own)))
        return _wait(running)
    finally:
        running.end()
        for number, handler in old.items():
            signal.signal(number, handler)


def _raise_exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _addresses(job: KvJob) -> dict[str, str]:
    """Address of every host as the others reach it."""
    alone = not job.other_hosts
    addresses = {}
    for host in job.hosts:
        try:
            addresses[host] = "127.0.0.1" if alone else socket.gethostbyname(host)
        except OSError as error:
            raise UserError(f"host '{host}' is not found ({error.strerror}); check its spelling") from None
    if not alone and any(address.startswith("127.") for address in addresses.values()):
        raise UserError("-H needs names that other hosts know: 'localhost' cannot stand beside other hosts")
    return addresses


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(
    words: list[str], host: str, shell: str, environment: RankEnvironment, own: dict[str, str]
) -> subprocess.Popen[bytes]:
    try:
        if is_here(host):
            whole = {**os.environ, **environment.flat(os.environ), **own}
            return subprocess.Popen(words, env=whole, stdin=subprocess.DEVNULL, preexec_fn=ends_with_us())
        variables = {**environment.flat({}), **own}
        # env comes last before the command: the preload must not reach the shells in between.
        line = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *words])
        script = f"cd {shlex.quote(str(Path.cwd()))} || exit 1; exec 3<&0; " + _TETHERED.format(line=line)
        return subprocess.Popen([*shlex.split(shell), host, script], stdin=subprocess.PIPE)
    except OSError as error:
        raise UserError(f"cannot start '{words[0]}' on {host}: {error.strerror}") from None


def _wait(running: _Running) -> int:
    """Status of the workers. One that fails ends the job; after the last one the others have some time."""
    workers = [member for member in running.members if member.role == "worker"]
    others = [member for member in running.members if member.role != "worker"]
    while any(member.process.poll() is None for member in workers):
        for member in running.members:
            status = member.process.poll()
            if status not in (None, 0):
                return _shell_status(member.process)
        for member in workers:
            try:
                member.process.wait(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                continue
    status = max(_shell_status(member.process) for member in workers)
    for member in others:
        try:
            member.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            break
    return status


def _shell_status(process: subprocess.Popen[bytes]) -> int:
    status = process.returncode or 0
    return 128 - status if status < 0 else status
