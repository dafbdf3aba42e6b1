"""`Lab`: emulated hosts that live as long as a ``with`` block.

with Lab(LabSpec(hosts=2, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9)) as lab:
    lab.run("h0", ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1", "python", "train.py"], check=True)
    print(lab.bytes_on_wire())
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ...errors import UserError
from . import cgroups, environment, flows, network, rights
from .flows import Collision, Flow
from .spec import HostSpec, LabSpec
from .state import StateFolder, remove_leftovers

_START_TIMEOUT_S = 20.0
_HERE = Path(__file__).parent
SWITCH = "switch"


@dataclass
class _Host:
    """One running host: its first process, its namespaces' sockets."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    pid: int
    link: network.NamespaceLink
    diag: socket.socket


@dataclass(frozen=True)
class HostProcess:
    """A process that runs in a host, with its numbers as the host sees them."""

    pid: int
    parent: int
    session: int
    state: str
    name: str
    argv: tuple[str, ...]


class Lab:
    """Emulated hosts h0, h1, ... with their own network, processes, /tmp, /dev/shm, name and clock.

    `shared` are folders that all hosts see although they lie below /tmp or /dev/shm; the folder the lab is
    started from and the Python environment are shared in any case. All other folders are the machine's own.

    The lab ends with the ``with`` block, or when its owner process ends, SIGKILL included.
    """

    def __init__(self, spec: LabSpec, *, shared: Iterable[str | Path] = ()) -> None:
        self.spec = spec
        self._shared = _shared_folders(shared)
        self._hosts: dict[str, _Host] = {}
        self._state: StateFolder | None = None
        self._agent = Path()
        self._groups: dict[str, list[Path]] = {}
        self._watch: flows.FlowWatch | None = None
        self._running: list[subprocess.Popen[Any]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Lab:
        """Start the hosts. Raises UserError with what is missing when this machine cannot."""
        rights.demand()
        remove_leftovers()
        self._state = StateFolder.make()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names, h0 first."""
        return self.spec.names

    def run(
        self,
        host: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float | None = None,
        check: bool = False,
        capture_output: bool = False,
        input: str | None = None,
        **popen: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host and wait for it; arguments and result as `subprocess.run`, with text streams.

        `env` is added to the owner's environment and the lab's own variables. When `timeout` (s) passes, the
        command and its whole session are killed and subprocess.TimeoutExpired is raised.
        """
        if capture_output:
            popen.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if input is not None:
            popen["stdin"] = subprocess.PIPE
        with self.start(host, argv, env=env, cwd=cwd, **popen) as process:
            try:
                out, err = process.communicate(input, timeout=timeout)
            except BaseException:
                process.kill()
                process.wait()
                raise
        done = subprocess.CompletedProcess([str(word) for word in argv], process.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def start(
        self,
        host: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        **popen: Any,
    ) -> subprocess.Popen[str]:
        """Start a command in a host; the Popen stands for it: its streams, signals and exit status.

        ``kill()`` kills the command's whole session. Exit status 127: the command could not be started.
        Raises UserError for a host that the lab does not have.
        """
        state = self._alive()
        if host not in self.spec.names:
            raise UserError(f"lab: there is no host '{host}'; the hosts are {', '.join(self.spec.names)}")
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                str(_HERE / "agent.py"),
                "run",
                str(state.socket(host)),
                *map(str, argv),
            ],
            env=environment.command_environment(self._agent, os.environ, env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            **popen,
        )
        with self._lock:
            self._running = [other for other in self._running if other.poll() is None]
            self._running.append(process)
        return process

    def find_program(self, name: str) -> str | None:
        """The file that a command of that name would start in a host (all hosts have the same), or None."""
        return shutil.which(name, path=environment.command_environment(self._agent, os.environ, None)["PATH"])

    def processes(self, host: str) -> list[HostProcess]:
        """What runs in a host now, its first process left out. Useful to see what a job has left behind."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(10)
            client.connect(str(self._alive().socket(host)))
            body = json.dumps({"list": True}).encode()
            client.sendall(len(body).to_bytes(4, "big") + body)
            found = json.loads(client.makefile("rb").readline())["processes"]
        return [HostProcess(**{**process, "argv": tuple(process["argv"])}) for process in found]

    def bytes_on_wire(self) -> dict[str, network.WireCount]:
        """What has crossed each host's interface since the lab started."""
        self._alive()
        return {name: network.count(self._hosts[name].pid) for name in self.spec.names}

    def flows(self) -> dict[Flow, int]:
        """TCP flows between hosts, those open now and those seen earlier, with the bytes each has sent."""
        self._alive()
        assert self._watch is not None
        return self._watch.look()

    def forget_flows(self) -> None:
        """Begin a new run: `collisions` looks at flows seen from now on."""
        if self._watch is not None:
            self._watch.forget()

    def collisions(self) -> list[Collision]:
        """Big flows that had to share one per-flow cap; if there are any, the run is void.

        Always empty without a flow cap. A flow that lived less than half a second may go unseen.
        """
        if all(self.spec.host(name).flow_cap_bits_per_s is None for name in self.spec.names):
            return []
        return flows.collisions(self.flows())

    def temporary_folder(self, host: str) -> Path:
        """Where the host's /tmp is for processes outside the lab."""
        return self._alive().host_folder(host) / "tmp"

    def close(self) -> None:
        """End everything in the hosts and remove the lab; may be called twice."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        for host in self._hosts.values():
            host.control.close()
            host.link.close()
            host.diag.close()
        for host in self._hosts.values():
            host.process.wait()
        self._hosts.clear()
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
        self._running.clear()
        if self._state is not None:
            self._state.remove()
            self._state = None

    def _alive(self) -> StateFolder:
        if self._state is None:
            raise UserError("lab: it is closed; use it inside its with block")
        return self._state

    def _start(self) -> None:
        state = self._alive()
        self._agent = environment.write_programs(state)
        login = environment.login_environment(self._agent, os.environ)
        (state.path / "login.json").write_text(json.dumps(login))
        lines = [f"{network.address(number)} {name}" for number, name in enumerate(self.spec.names)]
        (state.path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        self._make_groups(state)
        owner = os.pidfd_open(os.getpid())
        try:
            started = {name: self._launch(state, name, owner) for name in (SWITCH, *self.spec.names)}
            for name, (process, control) in started.items():
                self._hosts[name] = _await_ready(name, process, control)
        finally:
            os.close(owner)
            for name, (process, control) in started.items():
                if name not in self._hosts:
                    control.close()
                    process.wait()
        self._join()
        self._watch = flows.FlowWatch({name: self._hosts[name].diag for name in self.spec.names})
        if any(self.spec.host(name).flow_cap_bits_per_s is not None for name in self.spec.names):
            self._watch.start()

    def _make_groups(self, state: StateFolder) -> None:
        """One control group a host where it has a quota or cores of its own; `_groups` are the files to join by."""
        hosts = [self.spec.host(name) for name in self.spec.names]
        quotas = {host.name: host.quota_cores for host in hosts if host.quota_cores is not None}
        cpus = {host.name: host.cpus for host in hosts if host.cpus}
        for controller, wanted in (("cpu", quotas), ("cpuset", cpus)):
            if not wanted:
                continue
            hierarchy = cgroups.Hierarchy.find(controller)
            top = hierarchy.group(state.name)
            state.note_group(top)
            hierarchy.make_top(top, controller)
            for name in wanted:
                group = hierarchy.group(state.name, name)
                if controller == "cpu":
                    hierarchy.make(group, quotas[name])
                else:
                    hierarchy.make_cpuset(group, cpus[name])
                entry = hierarchy.entry(group)
                if entry not in self._groups.setdefault(name, []):
                    self._groups[name].append(entry)

    def _launch(
        self, state: StateFolder, name: str, owner: int
    ) -> tuple[subprocess.Popen[bytes], socket.socket]:
        host = HostSpec(SWITCH, 0) if name == SWITCH else self.spec.host(name)
        folder = state.host_folder(name)
        (folder / "tmp").mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        config = {
            "name": name,
            "owner_pidfd": owner,
            "socket": str(state.socket(name)),
            "tmp": str(folder / "tmp"),
            "hosts_file": str(state.path / "hosts"),
            "shared": [str(path) for path in self._shared],
            "cgroup_files": [str(entry) for entry in self._groups.get(name, [])],
            "clock_offset_ns": round(host.clock_offset_s * 1e9),
        }
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "keeper.py"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), owner),
                start_new_session=True,
                cwd="/",
            )
        ours.sendall(json.dumps(config).encode() + b"\n")
        return process, ours

    def _join(self) -> None:
        switch = self._hosts[SWITCH]
        network.attempt("making a bridge", lambda: network.make_bridge(switch.link))
        limit_arrivals = self.spec.hosts > 2 or not self.spec.uniform_nic
        for number, name in enumerate(self.spec.names):
            host, spec = self._hosts[name], self.spec.host(name)
            network.attempt(
                f"wiring {name}",
                lambda: network.wire(number, switch.link, host.link, host.pid),  # noqa: B023
            )
            network.attempt(
                f"shaping the NIC of {name}",
                lambda: network.shape(number, spec, switch.link, host.link, limit_arrivals),  # noqa: B023
            )


def _await_ready(name: str, process: subprocess.Popen[bytes], control: socket.socket) -> _Host:
    """The host once its first process is ready; raises UserError with the reason when it cannot start."""
    control.settimeout(_START_TIMEOUT_S)
    heard, pid, fds = b"", 0, []
    try:
        while True:
            piece, got, _, _ = socket.recv_fds(control, 65536, 8)
            fds += got
            heard += piece
            *lines, heard = heard.split(b"\n")
            answers = [json.loads(line) for line in lines]
            for answer in answers:
                if "error" in answer:
                    raise UserError(f"lab: {name} cannot start: {answer['error']}")
                pid = answer.get("pid", pid)
            if pid and len(fds) == 3:
                break
            if not piece:
                raise UserError(f"lab: {name} cannot start: its first process ended")
    except TimeoutError:
        raise UserError(
            f"lab: {name} did not start within {_START_TIMEOUT_S:g} s; is the machine overloaded?"
        ) from None
    finally:
        if not (pid and len(fds) == 3):
            for fd in fds:
                os.close(fd)
    route, raw, diag = (socket.socket(fileno=fd) for fd in fds)
    return _Host(process, control, pid, network.NamespaceLink(route, raw), diag)


def _shared_folders(asked: Iterable[str | Path]) -> tuple[Path, ...]:
    """Folders below the private ones that hosts must see all the same, outermost first."""
    needed = [Path(path).resolve() for path in asked]
    needed += [Path.cwd(), Path(sys.prefix), _HERE.parents[1]]
    for path in needed:
        if not path.is_dir():
            raise UserError(f"lab: shared folder {path} does not exist; make it first")
    private = [
        path
        for path in needed
        if any(path.is_relative_to(top) and path != Path(top) for top in ("/tmp", "/dev/shm"))
    ]
    return tuple(
        path
        for path in sorted(set(private))
        if not any(path != other and path.is_relative_to(other) for other in private)
    )
