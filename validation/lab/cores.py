"""The cores of a lab's hosts: quotas, real cores of one's own, and slow cores.

Slow cores: no single thread of a host may get more of a real core than the emulated core is worth.

The host's own control group limits the sum of its threads. Where a host has several slow cores that is not
enough: one thread could take a whole real core. So each thread that computes is put into a group of its own,
below the host's, with a quota of one emulated core. That covers what must be covered (a lane, Horovod's
background thread, an engine worker) without knowing which thread is which.

Threads are found by looking ten times a second; one that has used less than 20 ms of CPU is left where it is.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from ...errors import UserError
from .cgroups import Hierarchy
from .spec import LabSpec
from .state import StateFolder

INTERVAL_S = 0.1
BUSY_NS = 20_000_000


class HostGroups:
    """The control groups of a lab: one a host and controller where the host has a quota or cores of its own."""

    def __init__(self, spec: LabSpec) -> None:
        self._spec = spec
        self._entries: dict[str, list[Path]] = {}
        self._quotas: dict[str, Path] = {}
        self._hierarchy: Hierarchy | None = None

    @classmethod
    def make(cls, state: StateFolder, spec: LabSpec) -> HostGroups:
        """Make the groups that `spec` asks for. Raises UserError with what is missing."""
        groups = cls(spec)
        hosts = [spec.host(name) for name in spec.names]
        if any(host.cores is not None for host in hosts):
            hierarchy = groups._hierarchy = groups._open(state, "cpu")
            for host in hosts:
                if host.quota_cores is not None:
                    group = groups._quotas[host.name] = hierarchy.group(state.name, host.name)
                    hierarchy.make(group, host.quota_cores)
                    groups._add(host.name, hierarchy.entry(group))
        if any(host.cpus for host in hosts):
            hierarchy = groups._open(state, "cpuset")
            for host in hosts:
                if host.cpus:
                    group = hierarchy.group(state.name, host.name)
                    hierarchy.make_cpuset(group, host.cpus)
                    groups._add(host.name, hierarchy.entry(group))
        return groups

    def entries(self, host: str) -> list[Path]:
        """The files by which a process joins the host's groups."""
        return self._entries.get(host, [])

    def set_speed(self, host: str, cores: float, speed: float) -> None:
        """Change a running host's quota to `cores` at `speed`. Raises UserError."""
        assert self._hierarchy is not None
        try:
            self._hierarchy.set_quota(self._quotas[host], cores * speed)
        except OSError as error:
            raise UserError(f"lab: cannot change the quota of {host}: {error.strerror}") from None

    def core_watch(self) -> CoreWatch | None:
        """What keeps single threads on one slow core, where the spec has hosts with more than one of them."""
        slow = {
            self._quotas[host.name]: host.speed
            for host in map(self._spec.host, self._spec.names)
            if host.cores is not None and host.cores > 1 and host.speed < 1
        }
        return CoreWatch(self._hierarchy, slow) if slow and self._hierarchy is not None else None

    def _open(self, state: StateFolder, controller: str) -> Hierarchy:
        hierarchy = Hierarchy.find(controller)
        top = hierarchy.group(state.name)
        state.note_group(top)
        hierarchy.make_top(top, controller)
        return hierarchy

    def _add(self, host: str, entry: Path) -> None:
        entries = self._entries.setdefault(host, [])
        if entry not in entries:
            entries.append(entry)


class CoreWatch:
    """Keeps every busy thread of some hosts on one emulated core; `speeds` maps a host's group to its core's speed."""

    def __init__(self, hierarchy: Hierarchy, speeds: dict[Path, float]) -> None:
        self._hierarchy = hierarchy
        self._speeds = speeds
        self._own: dict[int, Path] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="vsketchdlc-lab-cores", daemon=True)

    def start(self) -> None:
        """Begin looking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; the groups go with the lab's."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Give every busy thread that has none a core of its own, and take back those of ended threads."""
        for group, speed in self._speeds.items():
            for tid in self._hierarchy.threads(group):
                if _cpu_ns(tid) >= BUSY_NS:
                    own = group / f"core-{tid}"
                    # The thread may end at any moment; then there is nothing to slow down.
                    with contextlib.suppress(OSError):
                        self._hierarchy.make_core(own, speed)
                        self._own[tid] = own
                        self._hierarchy.move_thread(tid, own)
        for tid, own in list(self._own.items()):
            if not Path(f"/proc/{tid}").exists():
                with contextlib.suppress(OSError):
                    own.rmdir()
                    del self._own[tid]

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self.look()


def _cpu_ns(tid: int) -> int:
    """CPU time that thread `tid` has used, nanoseconds; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{tid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
