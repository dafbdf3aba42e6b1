"""Fetch raw logs that stayed on other hosts (their ranks were killed before they could send them)."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .decode.convert import convert
from .raw import RawProcess, read_recording
from .recording import command_of
from .trace import Trace, check_target

_TIMEOUT_S = 300


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
    shell: str = "ssh -o BatchMode=yes",
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
        problem = _fetch(folder, host, shell)
        if problem:
            problems.append(f"{host}: {problem}")
    recording = read_recording(folder)
    if not recording:
        raise UserError(f"{folder} holds no log that can be read{': ' + problems[0] if problems else ''}")
    trace = convert(recording, target, command_of(folder))
    complete = not trace.meta.missing_ranks
    if complete:
        for host in wanted:
            _run(shell, host, f"rm -rf {shlex.quote(str(folder))}")
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


def _run(shell: str, host: str, line: str) -> subprocess.CompletedProcess[bytes] | str:
    try:
        return subprocess.run(
            [*shlex.split(shell), host, line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return f"'{shell}' cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"no answer in {_TIMEOUT_S} s"


def _fetch(folder: Path, host: str, shell: str) -> str | None:
    """Copy the other host's part of the recording; returns what went wrong, or None."""
    answer = _run(shell, host, f"cd {shlex.quote(str(folder))} && tar -cf - .")
    if isinstance(answer, str):
        return answer
    if answer.returncode != 0:
        lines = answer.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"status {answer.returncode}"
    try:
        with tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
            for member in archive.getmembers():
                parts = Path(member.name).parts
                if (
                    member.isfile()
                    and len(parts) == 2
                    and ".." not in parts
                    and not Path(member.name).is_absolute()
                ):
                    _write(archive, member, folder / parts[0] / parts[1])
    except (tarfile.TarError, OSError) as error:
        return f"its answer cannot be unpacked ({error})"
    return None


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    source = archive.extractfile(member)
    if source is None:
        return
    place.parent.mkdir(mode=0o700, exist_ok=True)
    with source, place.open("wb") as file:
        shutil.copyfileobj(source, file)
