"""What a lab leaves on disk while it lives, and how the remains of a dead owner's lab are found and removed.

Each lab has a folder ``<base>/<owner pid>-<owner start time>-<number>`` with a file ``owner.json``. The base
is /var/tmp/vsketchdlc-lab-<user id> (not below /tmp: hosts have their own /tmp), or VSKETCHDLC_LAB_STATE.
A lab whose owner process is gone, or whose machine has been rebooted since, is a leftover. Its processes are
dead already (see keeper.py); what is removed is its control group and its folder. Nothing else is touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ...errors import UserError
from . import cgroups

FORMAT_VERSION = 1
_UNFINISHED = ".new-"
_numbers = itertools.count()


@dataclass(frozen=True)
class Owner:
    """The process that a lab belongs to, so that it cannot be taken for a later one of the same number."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int

    @classmethod
    def myself(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        ticks = start_ticks(pid)
        assert ticks is not None
        return cls(pid, ticks, _boot_id(), _pid_namespace())

    def is_alive(self) -> bool:
        """Whether the owner still runs; True also when that cannot be told (another container's process)."""
        if self.boot_id != _boot_id():
            return False
        if self.pid_namespace != _pid_namespace():
            return True
        return start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True)
class StateFolder:
    """The folder of one lab of this process."""

    path: Path

    @classmethod
    def make(cls) -> StateFolder:
        """A new folder with its owner written in it. Raises UserError when the base is not usable."""
        owner = Owner.myself()
        top = base()
        with _locked(top):
            path = top / f"{owner.pid}-{owner.start_ticks}-{next(_numbers)}"
            unfinished = top / f"{_UNFINISHED}{path.name}"
            unfinished.mkdir(mode=0o700)
            record = {"format_version": FORMAT_VERSION, **asdict(owner)}
            (unfinished / "owner.json").write_text(json.dumps(record))
            unfinished.rename(path)
        return cls(path)

    @property
    def name(self) -> str:
        """The lab's name, unique on this machine: also that of its control group."""
        return f"vsketchdlc-lab-{self.path.name}"

    def note_group(self, group: Path) -> None:
        """Write down a control group before it is made, so that it can be removed whatever happens."""
        with (self.path / "groups").open("a") as file:
            file.write(f"{group}\n")

    def socket(self, host: str) -> Path:
        """Where the host's first process listens."""
        return self.path / f"{host}.sock"

    def host_folder(self, host: str) -> Path:
        """The folder that holds the host's files; its ``tmp`` is the host's /tmp."""
        return self.path / host

    def remove(self) -> None:
        """Remove the lab's control group and folder; its processes must have ended."""
        _remove(self.path)


def base() -> Path:
    """The folder of all labs of this user, made if missing. Raises UserError when it is not safe to use."""
    named = os.environ.get("VSKETCHDLC_LAB_STATE")
    path = Path(named) if named else Path(f"/var/tmp/vsketchdlc-lab-{_real_user()}")
    advice = "name another folder in VSKETCHDLC_LAB_STATE"
    if not path.is_absolute() or len(os.fsencode(path)) > 60 or len(str(path).split()) != 1:
        raise UserError(
            f"lab: state folder '{path}' must be an absolute path of at most 60 bytes without spaces; {advice}"
        )
    for private in ("/tmp", "/dev/shm"):
        if path.is_relative_to(private):
            raise UserError(
                f"lab: state folder '{path}' is below {private}, which every host has its own of; {advice}"
            )
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        raise UserError(f"lab: cannot make the state folder {path}: {error.strerror}; {advice}") from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise UserError(f"lab: state folder {path} belongs to someone else; {advice}")
    return path


def remove_leftovers() -> list[str]:
    """Remove what labs of dead owners left; returns their names. Labs whose owner lives are not touched."""
    top = base()
    removed = []
    with _locked(top):
        for path in sorted(top.iterdir()):
            if path.name.startswith(_UNFINISHED):  # Its maker held the lock that is ours now: it died.
                shutil.rmtree(path, ignore_errors=True)
                continue
            owner = _read_owner(path)
            if owner is not None and not owner.is_alive():
                _remove(path)
                removed.append(path.name)
    return removed


def _read_owner(path: Path) -> Owner | None:
    """The owner of a lab folder; None for anything that is not one."""
    try:
        record = json.loads((path / "owner.json").read_text())
        if record.pop("format_version") == FORMAT_VERSION:
            return Owner(**record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for line in (path / "groups").read_text().splitlines():
            group = Path(line)
            if group.name == f"vsketchdlc-lab-{path.name}":
                cgroups.remove_tree(group)
    # The owner's record goes last, so that a removal cut short, or undone by a process that was still dying,
    # is finished by the next one.
    for entry in path.iterdir():
        if entry.name != "owner.json":
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    if [entry.name for entry in path.iterdir()] == ["owner.json"]:
        (path / "owner.json").unlink()
        path.rmdir()


@contextlib.contextmanager
def _locked(top: Path) -> Iterator[None]:
    fd = os.open(top / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def start_ticks(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot; None when there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(") ")[2].split()
    return None if state in "ZX" else int(rest[18])


def _real_user() -> int:
    """The user's number outside a user namespace: root of one must not meet the machine's root."""
    user = os.geteuid()
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= user < inside + count:
            return outside + user - inside
    return user


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
