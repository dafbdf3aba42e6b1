"""The first process of an emulated host: makes its namespaces, starts commands in it, dies with its lab.

Run as a program of its own (``python -I -S keeper.py CONTROL_FD``), standard library only, so that it starts
in a few milliseconds and brings nothing of the lab's owner along. It is to the host what init and sshd are
to a machine:

1. It reads one JSON configuration from the control socket, joins its cgroups, unshares network, mount, PID,
   UTS, IPC (and time) namespaces and forks; the child is process 1 of the host.
2. Process 1 names the host, mounts its own /proc, /tmp, /dev/shm, /etc/hosts, sends netlink sockets of the
   host to the owner (which shapes the links from outside), listens on a Unix socket, and reports ready.
3. A client (agent.py) sends one request with its three standard streams; the command runs in a session of
   its own; signals are passed on; the wait status is sent back. A client that goes away takes its command's
   whole session with it (SIGKILL); a command that ends by itself leaves its children alone, as sshd does.
4. When the owner ends, for whatever reason, its pidfd becomes readable, process 1 exits, and the kernel
   kills everything in the host and removes the namespaces.

Messages are a 4-byte big-endian length and JSON; after its request a client sends single bytes, each a signal.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x20000000, 0x40000000, 0x00000080
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_SET_NAME = 15
NETLINK_ROUTE, NETLINK_SOCK_DIAG = 0, 4
LONGEST_REQUEST = 64 << 20

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The kernel said no; the text names the call and the reason."""


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise Refused(f"{what}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2); raises Refused."""
    arguments = (
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(libc.mount(*arguments), f"mount {source} on {target}")


def main() -> None:
    """Become a host: see the module's text."""
    control = socket.socket(fileno=int(sys.argv[1]))
    config = json.loads(control.makefile("rb").readline())
    for fd in (control.fileno(), config["owner_pidfd"]):
        os.set_inheritable(fd, False)
    try:
        pid = enter_namespaces(config)
        if pid == 0:
            First(config, control).serve()
    except BaseException as error:
        say(control, {"error": str(error) if isinstance(error, Refused) else traceback.format_exc(limit=-3)})
        os._exit(1)
    say(control, {"pid": pid})
    control.close()
    os.waitpid(pid, 0)
    os._exit(0)


def say(sock: socket.socket, message: Mapping[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one JSON line, with file descriptors if any; the other end may be gone."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    with contextlib.suppress(OSError):
        sock.sendmsg([json.dumps(message).encode() + b"\n"], ancillary)


def enter_namespaces(config: Mapping[str, Any]) -> int:
    """Join the cgroups and unshare; returns like fork: 0 in process 1 of the new host, its pid in the parent."""
    for group in config["cgroup_files"]:
        try:
            with open(group, "w") as file:  # noqa: PTH123
                file.write("0")
        except OSError as error:
            raise Refused(f"join {group}: {error.strerror}") from None
    spaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    offset_ns = config["clock_offset_ns"]
    if offset_ns:
        if not os.path.exists("/proc/self/ns/time"):  # noqa: PTH110
            raise Refused("clock_offset needs time namespaces: Linux 5.6 or newer")
        spaces |= CLONE_NEWTIME
    _check(libc.unshare(spaces), "unshare")
    if offset_ns:
        seconds, nanoseconds = divmod(offset_ns, 1_000_000_000)
        try:
            with open("/proc/self/timens_offsets", "w") as file:  # noqa: PTH123
                file.write(f"monotonic {seconds} {nanoseconds}\nboottime {seconds} {nanoseconds}\n")
        except OSError as error:
            raise Refused(f"clock_offset {offset_ns / 1e9:g} s: {error.strerror}") from None
    return os.fork()


class Command:
    """A running command and the client it belongs to."""

    def __init__(self, pid: int, client: socket.socket) -> None:
        self.pid = pid
        self.client: socket.socket = client


class First:
    """Process 1 of the host."""

    def __init__(self, config: Mapping[str, Any], control: socket.socket) -> None:
        self.config = config
        self.control = control
        self.commands: dict[int, Command] = {}
        self.waiting: dict[int, socket.socket] = {}
        self.poll = select.poll()

    def serve(self) -> NoReturn:
        """Set the host up, then answer requests until the owner is gone."""
        os.setsid()
        self.set_up()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.config["socket"])
        listener.listen(64)
        kinds = (NETLINK_ROUTE, NETLINK_ROUTE, NETLINK_SOCK_DIAG)
        sockets = [socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, kind) for kind in kinds]
        say(self.control, {"ready": True}, tuple(sock.fileno() for sock in sockets))
        for sock in sockets:
            sock.close()
        owner = self.config["owner_pidfd"]
        for fd in (owner, self.control.fileno(), wake_read, listener.fileno()):
            self.poll.register(fd, select.POLLIN)
        while True:
            # The listener comes last, so that a new client cannot get the number of one that left in this round.
            ready = [fd for fd, _ in self.poll.poll()]
            for fd in sorted(ready, key=lambda fd: fd == listener.fileno()):
                if fd in (owner, self.control.fileno()):
                    os._exit(
                        0
                    )  # The owner ended or closed the lab: the kernel ends the host with its process 1.
                elif fd == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self.reap()
                elif fd == listener.fileno():
                    with contextlib.suppress(OSError):  # The client has gone again, or there are too many.
                        client, _ = listener.accept()
                        self.waiting[client.fileno()] = client
                        self.poll.register(client, select.POLLIN)
                elif fd in self.waiting:
                    self.begin(self.waiting.pop(fd))
                elif fd in self.commands:
                    self.hear(fd)

    def set_up(self) -> None:
        """Name and mounts. Everything mounted here is the host's own and goes with it."""
        config = self.config
        libc.prctl(PR_SET_NAME, f"lab-{config['name']}".encode(), 0, 0, 0)
        socket.sethostname(config["name"])
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        with contextlib.suppress(OSError), open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as file:  # noqa: PTH123
            file.write("1")
        # The shared folders may lie below /tmp or /dev/shm, which are about to be covered: hold them open.
        shared = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in config["shared"]]
        mount(config["tmp"], "/tmp", "", MS_BIND)
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
        for path, fd in shared:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            mount(f"/proc/self/fd/{fd}", path, "", MS_BIND | MS_REC)
            os.close(fd)
        if os.path.exists("/etc/hosts"):  # noqa: PTH110
            mount(config["hosts_file"], "/etc/hosts", "", MS_BIND)
        os.chdir("/")

    def begin(self, client: socket.socket) -> None:
        """Read a client's request and start its command."""
        self.poll.unregister(client)
        client.settimeout(10)
        fds: list[int] = []
        try:
            request = receive(client, fds)
            if request.get("list"):
                say(client, {"processes": processes()})
                return client.close()
            if "signal_all" in request:
                for process in processes():
                    with contextlib.suppress(OSError):
                        os.kill(process["pid"], request["signal_all"])
                say(client, {"done": True})
                return client.close()
            if len(fds) != 3:
                raise Refused("a request needs the client's three standard streams")
            pid = start(request, fds)
        except (OSError, ValueError, KeyError, Refused) as error:
            say(client, {"error": str(error)})
            return client.close()
        finally:
            for fd in fds:
                os.close(fd)
        client.settimeout(None)
        say(client, {"started": pid})
        self.commands[client.fileno()] = Command(pid, client)
        self.poll.register(client, select.POLLIN)

    def hear(self, fd: int) -> None:
        """A client sends signals, or has gone."""
        command = self.commands[fd]
        try:
            numbers = command.client.recv(64)
        except OSError:
            numbers = b""
        for number in numbers:
            with contextlib.suppress(OSError):
                os.killpg(command.pid, number)
        if not numbers:
            self.forget(fd)
            kill_session(command.pid)

    def reap(self) -> None:
        """Collect the dead: clients' commands are reported, adopted orphans just go."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for fd, command in list(self.commands.items()):
                if command.pid == pid:
                    say(command.client, {"status": status})
                    self.forget(fd)

    def forget(self, fd: int) -> None:
        """Drop a client."""
        command = self.commands.pop(fd)
        self.poll.unregister(fd)
        command.client.close()


def receive(client: socket.socket, fds: list[int]) -> dict[str, Any]:
    """One length-prefixed JSON request; its file descriptors are added to `fds`."""
    head, ancillary, _, _ = client.recvmsg(4, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.extend(array.array("i", data[: len(data) - len(data) % 4]))
    while 0 < len(head) < 4:
        head += client.recv(4 - len(head))
    if len(head) < 4:
        raise Refused("the client left")
    length = struct.unpack(">I", head)[0]
    if length > LONGEST_REQUEST:
        raise Refused("the request is too long")
    body = bytearray()
    while len(body) < length:
        piece = client.recv(min(1 << 16, length - len(body)))
        if not piece:
            raise Refused("the client left")
        body += piece
    request = json.loads(body)
    if not isinstance(request, dict):
        raise Refused("a request is a JSON object")
    return request


def start(request: Mapping[str, Any], fds: list[int]) -> int:
    """Fork and execute the command; returns its pid once the program runs. Raises Refused when it cannot."""
    argv, env, cwd = request["argv"], request["env"], request["cwd"]
    failed_read, failed_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)
        except Exception as error:
            no_folder = isinstance(error, FileNotFoundError) and not os.path.isdir(cwd)  # noqa: PTH112
            what = f"folder {cwd}" if no_folder else argv[0]
            os.write(failed_write, f"{what}: {getattr(error, 'strerror', None) or error}".encode())
        finally:
            os._exit(127)
    os.close(failed_write)
    with open(failed_read, "rb") as pipe:  # noqa: PTH123
        failure = pipe.read()
    if failure:
        raise Refused(failure.decode())
    return pid


def processes() -> list[dict[str, Any]]:
    """All processes of the host but this one: pid, parent, session, state, name, command line."""
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and entry != "1":
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/stat") as file:  # noqa: PTH123
                    name, _, rest = file.read().partition(" (")[2].rpartition(") ")
                with open(f"/proc/{entry}/cmdline") as file:  # noqa: PTH123
                    words = file.read().split("\0")[:-1]
                state, parent, _, session = rest.split()[:4]
                found.append(
                    {"pid": int(entry), "parent": int(parent), "session": int(session), "state": state}
                    | {"name": name, "argv": words}
                )
    return found


def kill_session(session: int) -> None:
    """SIGKILL every process of a session, until none is left that could fork another."""
    for _ in range(100):
        left = [
            found["pid"] for found in processes() if found["session"] == session and found["state"] != "Z"
        ]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
