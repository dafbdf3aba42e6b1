"""Starts a command inside an emulated host and stands for it: streams, signals and exit status are its own.

A program of its own (``python -I -S agent.py ...``), standard library only:

* ``agent.py run SOCKET COMMAND...``: the command gets this process's environment and working folder.
* ``agent.py rsh FOLDER [OPTIONS] [USER@]HOST [COMMAND...]``: what rsh and ssh do, so that mpirun and horovodrun find
  nothing unusual. The command runs through ``sh -c`` with the host's login environment, not with the caller's.

Killing this process kills the command's whole session. Exit status 255: the host could not be reached.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import struct
import sys
from typing import NoReturn

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
# ssh options that take a value as the next word.
WITH_VALUE = "bcDeEFiIJLlmOopQRSWw"


def main() -> NoReturn:
    """Parse the two forms; see the module's text."""
    for fd in (0, 1, 2):  # A closed standard stream must not become one of this program's own files.
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    form, *words = sys.argv[1:]
    if form == "run":
        run(words[0], words[1:], dict(os.environ), os.getcwd())  # noqa: PTH109
    folder, *words = words
    host, command = remote_words(words)
    with open(f"{folder}/login.json") as file:  # noqa: PTH123
        env = json.load(file)
    address = f"{folder}/{host}.sock"
    if not host or "/" in host or not os.path.exists(address):  # noqa: PTH110
        leave(f"lab: there is no host '{host}'")
    run(address, ["/bin/sh", "-c", " ".join(command)] if command else ["/bin/sh"], env, env.get("HOME", "/"))


def remote_words(words: list[str]) -> tuple[str, list[str]]:
    """The host and the command of an ssh or rsh command line."""
    host = ""
    place = 0
    while place < len(words):
        word = words[place]
        if word.startswith("-") and len(word) > 1:
            place += 2 if len(word) == 2 and word[1] in WITH_VALUE else 1
            continue
        if host:
            break
        host = word
        place += 1
    return host.rpartition("@")[2], words[place:]


def leave(line: str) -> NoReturn:
    """Say why and leave with ssh's own status for "could not connect"."""
    print(line, file=sys.stderr)
    sys.exit(255)


def run(address: str, argv: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    """Start the command behind `address` and end as it ends."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    for name in FORWARDED:
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, lambda *_: None)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.connect(address)
        body = json.dumps({"argv": argv, "env": env, "cwd": cwd}).encode()
        server.sendmsg(
            [struct.pack(">I", len(body))],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))],
        )
        server.sendall(body)
    except OSError as error:
        leave(f"lab: the host behind {address} does not answer: {error.strerror}")
    for fd in (0, 1, 2):  # The command has them now; holding them would keep a pipe's other end waiting.
        null = os.open(os.devnull, os.O_RDWR)
        if fd != 2:
            os.dup2(null, fd)
        os.close(null)
    poll = select.poll()
    poll.register(server, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    heard = b""
    while True:
        for fd, _ in poll.poll():
            if fd == wake_read:
                server.send(os.read(wake_read, 64))
                continue
            piece = server.recv(4096)
            heard += piece
            for line in heard.splitlines():
                answer = json.loads(line) if line.endswith(b"}") else {}
                if "error" in answer:
                    print(f"lab: cannot start {answer['error']}", file=sys.stderr)
                    sys.exit(127)
                if "status" in answer:
                    end_like(answer["status"])
            if not piece:
                leave("lab: the host has gone")


def end_like(status: int) -> NoReturn:
    """End with the same exit status, or by the same signal, as the command."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
