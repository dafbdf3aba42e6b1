"""Other hosts, reached by a remote shell such as ssh."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

SSH = "ssh -o BatchMode=yes"
_TIMEOUT_S = 300


def run_on(shell: str, host: str, line: str) -> subprocess.CompletedProcess[bytes] | str:
    """Run the shell command `line` on `host`; a sentence where that cannot even be tried."""
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


def fetch_recording(folder: Path, host: str, shell: str) -> str | None:
    """Copy the part of the raw recording `folder` that lies on `host`; returns what went wrong, or None."""
    answer = run_on(shell, host, f"cd {shlex.quote(str(folder))} && tar -cf - .")
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


def remove_recording(folder: Path, host: str, shell: str) -> None:
    """Remove what lies of `folder` on `host`."""
    run_on(shell, host, f"rm -rf {shlex.quote(str(folder))}")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    source = archive.extractfile(member)
    if source is None:
        return
    place.parent.mkdir(mode=0o700, exist_ok=True)
    with source, place.open("wb") as file:
        shutil.copyfileobj(source, file)
