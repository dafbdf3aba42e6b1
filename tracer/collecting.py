"""Fetch raw logs that stayed on other hosts (their ranks were killed before they could send them)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .decode.convert import convert
from .raw import RawProcess, read_recording
from .recording import command_of
from .remote import SSH, fetch_recording, remove_recording
from .trace import Trace, check_target


@dataclass(frozen=True)
class Collected:
    """Outcome: the trace, what could not be fetched (one sentence a host), and whether the raw logs were removed."""

    trace: Trace
    problems: list[str]
    removed: bool


def collect(
    folder: Path,
    target: Path,
    hosts: Sequence[str] = (),
    shell: str = SSH,
    say: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Complete the raw recording in `folder` from other hosts and write its Trace to `target`.

    `hosts` defaults to those that rank 0 heard of. `shell` is the remote shell's command; it is given a host and
    a command line. The raw logs are removed everywhere only when no rank is missing.

    Raises UserError when `folder` is no recording, nothing is in it, or the trace cannot be written.
    """
    check_target(target)
    if not folder.is_dir():
        raise UserError(f"no raw recording at {folder}: 'vsketchdlc trace' prints where it keeps one")
    wanted = list(hosts) or _hosts_elsewhere(folder)
    problems = []
    for host in wanted:
        say(f"fetching from {host}")
        problem = fetch_recording(folder, host, shell)
        if problem:
            problems.append(f"{host}: {problem}")
    recording = read_recording(folder)
    if not recording:
        raise UserError(f"{folder} holds no log that can be read{': ' + problems[0] if problems else ''}")
    trace = convert(recording, target, command_of(folder))
    complete = not trace.meta.missing_ranks
    if complete:
        for host in wanted:
            remove_recording(folder, host, shell)
        shutil.rmtree(folder, ignore_errors=True)
    return Collected(trace, problems, complete)


def _hosts_elsewhere(folder: Path) -> list[str]:
    """Hosts whose folders rank 0 knows but that are not here."""
    processes: list[RawProcess] = read_recording(folder)
    found = {}
    for process in processes:
        for host, place in process.peers.values():
            if not (folder / Path(place).name).exists():
                found[host] = True
    return list(found)
