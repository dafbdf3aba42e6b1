"""CPU quotas and cores of one's own by nested control groups, version 1 and version 2.

One group per lab, one per host below it, and below that one per thing that must not get more than one slow
core (a lane, Horovod's background thread). Only groups made here are ever changed or removed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError

# A short period keeps throttled pauses short; the kernel takes no quota below 1 ms.
PERIOD_US = 5_000
SHORTEST_QUOTA_US = 1_000
LONGEST_PERIOD_US = 1_000_000


def period_and_quota_us(cores: float) -> tuple[int, int]:
    """Period and quota, microseconds, that give `cores` real cores' worth of CPU time.

    The period is 5 ms unless the quota would fall below the kernel's 1 ms; then it is as long as needed.
    """
    period = PERIOD_US
    if cores * period < SHORTEST_QUOTA_US:
        period = min(LONGEST_PERIOD_US, -(-SHORTEST_QUOTA_US * 1000 // max(1, round(cores * 1000))))
    return period, max(SHORTEST_QUOTA_US, round(cores * period))


@dataclass(frozen=True)
class Hierarchy:
    """Where this process may make groups of one controller: `version` 1 or 2, and the folder to make them in.

    ``cpu`` gives quotas; ``cpuset`` gives cores that no program in the group can leave, as it can an affinity
    mask. Version 2 has one hierarchy for both, so there both have the same folder.
    """

    version: int
    folder: Path

    @classmethod
    def find(cls, controller: str = "cpu", proc: Path = Path("/proc/self")) -> Hierarchy:
        """The place of `controller` for this process.

        Version 1: below the process's own group. Version 2: below the mount's top, because a group that has
        processes may not hand controllers to groups below it. Raises UserError with what is missing.
        """
        mounts = _cgroup_mounts((proc / "mountinfo").read_text())
        own = _own_groups((proc / "cgroup").read_text())
        for mount in mounts:
            if mount.version == 1 and controller in mount.controllers:
                return cls(1, mount.place_of(own.get(controller, "/")))
        for mount in mounts:
            if mount.version == 2:
                return cls._version_2(mount.point, controller)
        raise UserError(
            "lab: cores and cpus need control groups and none are mounted; "
            "mount cgroup2 on /sys/fs/cgroup, or leave them out"
        )

    @classmethod
    def _version_2(cls, top: Path, controller: str) -> Hierarchy:
        try:
            available = (top / "cgroup.controllers").read_text().split()
            handed_down = (top / "cgroup.subtree_control").read_text().split()
            if controller not in available:
                raise UserError(
                    f"lab: the {controller} controller is needed for cores or cpus "
                    f"and {top}/cgroup.controllers has only: {' '.join(available) or 'none'}"
                )
            if controller not in handed_down:
                (top / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            raise UserError(
                f"lab: cores and cpus need the right to hand the {controller} controller down in {top} "
                f"({error.strerror}); run as root outside a container, or leave them out"
            ) from None
        return cls(2, top)

    def group(self, *names: str) -> Path:
        """The folder of a group of this lab."""
        return self.folder.joinpath(*names)

    def make_top(self, group: Path, controller: str) -> None:
        """Make the lab's own group, which hands `controller` down to its hosts' groups. Raises UserError."""
        try:
            group.mkdir(exist_ok=True)
            if self.version == 2:
                (group / "cgroup.subtree_control").write_text(f"+{controller}")
            elif controller == "cpuset":
                _inherit_cpuset(group)
        except OSError as error:
            raise _cannot_make(group, error) from None

    def make(self, group: Path, cores: float) -> None:
        """Make `group` with a quota of `cores` real cores' worth. Raises UserError."""
        try:
            group.mkdir(exist_ok=True)
            self.set_quota(group, cores)
        except OSError as error:
            raise _cannot_make(group, error) from None

    def make_cpuset(self, group: Path, cpus: Iterable[int]) -> None:
        """Make `group` whose processes run on the real cores `cpus` only. Raises UserError."""
        try:
            group.mkdir(exist_ok=True)
            if self.version == 1:
                _inherit_cpuset(group)
            (group / "cpuset.cpus").write_text(",".join(map(str, cpus)))
        except OSError as error:
            raise _cannot_make(group, error) from None

    def set_quota(self, group: Path, cores: float) -> None:
        """Give `group` a quota of `cores` real cores' worth; may be done while it runs. Raises OSError."""
        period, quota = period_and_quota_us(cores)
        if self.version == 2:
            (group / "cpu.max").write_text(f"{quota} {period}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(quota))

    def make_core(self, group: Path, speed: float) -> None:
        """Make a group for one thread, below a host's group, with a quota of one core at `speed`. Raises OSError."""
        group.mkdir(exist_ok=True)
        if (
            self.version == 2
        ):  # Threads of one process in several groups: the host's group becomes their root.
            (group / "cgroup.type").write_text("threaded")
            (group.parent / "cgroup.subtree_control").write_text("+cpu")
        self.set_quota(group, speed)

    def threads(self, group: Path) -> list[int]:
        """The threads that are in `group` itself."""
        name = "cgroup.threads" if self.version == 2 else "tasks"
        return [int(line) for line in (group / name).read_text().split()]

    def move_thread(self, tid: int, group: Path) -> None:
        """Put one thread into `group`. Raises OSError when it has ended."""
        (group / ("cgroup.threads" if self.version == 2 else "tasks")).write_text(str(tid))

    def entry(self, group: Path) -> Path:
        """The file that takes "0" from a process that joins `group`."""
        return group / "cgroup.procs"

    def throttled_s(self, group: Path) -> float:
        """Seconds that `group` has been held back by its quota so far."""
        facts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        if self.version == 2:
            return int(facts.get("throttled_usec", 0)) / 1e6
        return int(facts.get("throttled_time", 0)) / 1e9


def _inherit_cpuset(group: Path) -> None:
    """Version 1 starts a cpuset empty, and nothing can join it before it has cores and memory nodes."""
    for name in ("cpuset.mems", "cpuset.cpus"):
        (group / name).write_text((group.parent / name).read_text())


def _cannot_make(group: Path, error: OSError) -> UserError:
    return UserError(
        f"lab: cannot make the control group {group}: {error.strerror}; run as root, or leave cores and cpus out"
    )


def remove_tree(group: Path, patience_s: float = 5.0) -> bool:
    """Remove `group` and all groups below it, waiting for dying processes to leave; False if one stays."""
    deadline = time.monotonic() + patience_s
    while group.is_dir():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if group.is_dir():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


@dataclass(frozen=True)
class _Mount:
    version: int
    root: str
    point: Path
    controllers: frozenset[str]

    def place_of(self, group: str) -> Path:
        """Where the group of that name (as /proc/self/cgroup gives it) is in this mount."""
        below = group[len(self.root) :] if self.root != "/" and group.startswith(self.root) else group
        return self.point / below.lstrip("/")


def _cgroup_mounts(mountinfo: str) -> list[_Mount]:
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        _, _, _, root, point, *_ = left.split()
        kind, _, options = right.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            found.append(
                _Mount(1 if kind == "cgroup" else 2, root, Path(point), frozenset(options.split(",")))
            )
    return found


def _own_groups(text: str) -> dict[str, str]:
    groups = {}
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = group
    return groups
