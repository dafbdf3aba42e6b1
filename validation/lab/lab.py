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
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ...errors import UserError
from . import environment, flows, network, rights
from .cores import CoreWatch, HostGroups
from .flows import Collision, Flow, Sighting
from .hosts import Host, HostConfig, HostProcess, StartingHost
from .spec import LabSpec
from .state import StateFolder, remove_leftovers

SWITCH = "switch"
_PACKAGE = Path(__file__).parents[2]
_PRIVATE = ("/tmp", "/dev/shm")


class Lab:
    """Emulated hosts h0, h1, ... with their own network, processes, /tmp, /dev/shm, name and clock.

    `shared` are folders that all hosts see although they lie below /tmp or /dev/shm; the folder the lab is
    started from and the Python environment are shared in any case. All other folders are the machine's own.

    The lab ends with the ``with`` block, or when its owner process ends, SIGKILL included.
    """

    def __init__(self, spec: LabSpec, *, shared: Iterable[str | Path] = ()) -> None:
        self.spec = spec
        self._shared = _shared_folders(shared)
        self._hosts: dict[str, Host] = {}
        self._state: StateFolder | None = None
        self._agent = Path()
        self._groups: HostGroups | None = None
        self._watch: flows.FlowWatch | None = None
        self._core_watch: CoreWatch | None = None
        self._running: list[subprocess.Popen[Any]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Lab:
        """Start the hosts. Raises UserError with what is missing when this machine cannot."""
        rights.demand()
        remove_leftovers()
        _open_standard_streams()
        try:
            self._state = StateFolder.make()
            self._start()
        except OSError as error:
            self.close()
            where = f" ({error.filename})" if error.filename else ""
            raise UserError(
                f"lab: cannot start: {error.strerror}{where}; free what it names and try again"
            ) from None
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
        environ = environment.command_environment(self._agent, os.environ, env)
        process = self._host(host).start(argv, environ, cwd, (stdin, stdout, stderr), **popen)
        with self._lock:
            self._running = [other for other in self._running if other.poll() is None]
            self._running.append(process)
        return process

    def find_program(self, name: str) -> str | None:
        """The file that a command of that name would start in a host (all hosts have the same), or None."""
        return shutil.which(name, path=environment.command_environment(self._agent, os.environ, None)["PATH"])

    def processes(self, host: str) -> list[HostProcess]:
        """What runs in a host now, its first process left out. Useful to see what a job has left behind."""
        return self._host(host).processes()

    def bytes_on_wire(self) -> dict[str, network.WireCount]:
        """What has crossed each host's interface since the lab started."""
        return {name: network.count(self._host(name).pid) for name in self.spec.names if name in self._hosts}

    def flows(self) -> dict[Flow, Sighting]:
        """TCP flows between hosts, those open now and, with a flow cap, those seen twice a second earlier."""
        assert self._alive() and self._watch is not None
        return self._watch.look()

    def forget_flows(self) -> None:
        """Begin a new run: `collisions` looks at flows seen from now on."""
        if self._watch is not None:
            self._watch.forget()

    def collisions(self) -> list[Collision]:
        """Big flows that had to share one per-flow cap at the same time; if there are any, the run is void.

        Always empty without a flow cap. A flow that lived less than half a second may go unseen.
        """
        if all(host.wire is None or host.wire.flow_cap_bits_per_s is None for host in self._hosts.values()):
            return []
        return flows.collisions(self.flows())

    def temporary_folder(self, host: str) -> Path:
        """Where the host's /tmp is for processes outside the lab."""
        return self._alive().host_folder(self._host(host).name) / "tmp"

    def set_nic(self, host: str, bits_per_s: float) -> None:
        """Give a running host's NIC another rate, both ways; ``math.inf`` is no limit."""
        wire = self._wire(host)
        wire.limit_arrivals = True
        wire.set_nic(bits_per_s)

    def set_flow_cap(self, host: str, bits_per_s: float | None) -> None:
        """Give each flow that a running host sends another cap; None is none."""
        self._wire(host).set_flow_cap(bits_per_s)
        if self._watch is not None and bits_per_s is not None:
            self._watch.start()

    def slow_flow(self, flow: Flow, bits_per_s: float) -> None:
        """Slow one flow down (or nearly stop it: 1000 bit/s); its host needs a flow cap. Raises UserError."""
        self._wire(flow.host).set_flow_rate(flow.flow_class, bits_per_s)

    def cut_flow(self, flow: Flow) -> None:
        """Abort one open connection: both ends see a reset. Raises UserError when it has ended already."""
        assert self._alive() and self._watch is not None
        try:
            self._watch.cut(flow)
        except OSError as error:
            raise UserError(f"lab: the flow {flow} cannot be cut: {error.strerror}") from None

    def link_down(self, host: str) -> None:
        """Pull a host's cable: packets vanish, and neither end is told."""
        self._wire(host).pull()

    def link_up(self, host: str) -> None:
        """Put the cable back."""
        self._wire(host).plug()

    def set_speed(self, host: str, speed: float) -> None:
        """Make a running host's cores slower or faster; it must have `cores` in its spec. Raises UserError."""
        cores = self.spec.host(self._host(host).name).cores
        if cores is None or self._groups is None:
            raise UserError(f"lab: {host} has no CPU quota to change; give it cores")
        self._groups.set_speed(host, cores, speed)

    def pause(self, host: str) -> None:
        """Stop every process of a host where it is (SIGSTOP); its kernel still answers the network."""
        self._host(host).signal_all(signal.SIGSTOP)

    def resume(self, host: str) -> None:
        """Let a paused host go on."""
        self._host(host).signal_all(signal.SIGCONT)

    def crash(self, host: str) -> None:
        """End a host as a power cut does: its peers hear nothing any more, not even that connections closed."""
        self.link_down(host)
        self._hosts.pop(host).end()

    def close(self) -> None:
        """End everything in the hosts and remove the lab; may be called twice."""
        for watch in (self._watch, self._core_watch):
            if watch is not None:
                watch.stop()
        self._watch = self._core_watch = None
        for host in self._hosts.values():
            host.end()
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

    def _host(self, name: str) -> Host:
        self._alive()
        if name not in self.spec.names:
            raise UserError(f"lab: there is no host '{name}'; the hosts are {', '.join(self.spec.names)}")
        if name not in self._hosts:
            raise UserError(f"lab: host {name} has crashed")
        return self._hosts[name]

    def _wire(self, name: str) -> network.Wire:
        wire = self._host(name).wire
        assert wire is not None
        return wire

    def _start(self) -> None:
        state = self._alive()
        self._agent = environment.write_programs(state)
        login = environment.login_environment(self._agent, os.environ)
        (state.path / "login.json").write_text(json.dumps(login))
        lines = [f"{network.address(number)} {name}" for number, name in enumerate(self.spec.names)]
        (state.path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        self._groups = HostGroups.make(state, self.spec)
        self._start_hosts(state)
        switch = self._hosts[SWITCH]
        network.make_switches(switch.link, self.spec)
        for number, name in enumerate(self.spec.names):
            host = self._hosts[name]
            host.wire = network.join(number, self.spec, switch.link, host.link, host.pid)
        self._watch = flows.FlowWatch({name: self._hosts[name].diag for name in self.spec.names})
        if any(self.spec.host(name).flow_cap_bits_per_s is not None for name in self.spec.names):
            self._watch.start()
        self._core_watch = self._groups.core_watch()
        if self._core_watch is not None:
            self._core_watch.start()

    def _start_hosts(self, state: StateFolder) -> None:
        owner = os.pidfd_open(os.getpid())
        started: list[StartingHost] = []
        try:
            for name in (SWITCH, *self.spec.names):
                started.append(StartingHost(self._config(state, name), owner))
            for starting in started:
                self._hosts[starting.config.name] = starting.ready()
        finally:
            os.close(owner)
            for starting in started:
                if starting.config.name not in self._hosts:
                    starting.abandon()

    def _config(self, state: StateFolder, name: str) -> HostConfig:
        assert self._groups is not None
        folder = state.host_folder(name)
        (folder / "tmp").mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        offset_s = 0.0 if name == SWITCH else self.spec.host(name).clock_offset_s
        return HostConfig(
            name=name,
            socket=str(state.socket(name)),
            tmp=str(folder / "tmp"),
            hosts_file=str(state.path / "hosts"),
            shared=[str(path) for path in self._shared],
            cgroup_files=[str(entry) for entry in self._groups.entries(name)],
            clock_offset_ns=round(offset_s * 1e9),
        )


def _open_standard_streams() -> None:
    """Where the owner was started with a closed stream, its number must not go to a socket of the lab's."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _shared_folders(asked: Iterable[str | Path]) -> tuple[Path, ...]:
    """Folders below the private ones that hosts must see all the same, outermost first.

    Raises UserError for one that does not exist.
    """
    try:
        needed = [Path(path).resolve() for path in asked] + [Path.cwd(), Path(sys.prefix), _PACKAGE]
    except OSError as error:
        raise UserError(
            f"lab: the folder you are in is gone ({error.strerror}); change to another one"
        ) from None
    for path in needed:
        if not path.is_dir():
            raise UserError(f"lab: shared folder {path} does not exist; make it first")
    hidden = {path for path in needed for top in _PRIVATE if path.is_relative_to(top) and path != Path(top)}
    return tuple(path for path in sorted(hidden) if not any(other in path.parents for other in hidden))
