"""Run the user's command traced, and make a Trace of what its ranks left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError
from . import launcher
from .decode.convert import convert
from .kvstore_job import KvJob, run_kvstore_job
from .raw import read_recording
from .remote import fetch_recording, remove_recording
from .trace import Trace, check_target

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "libvsketch.so"
HOOK_FOLDER = HERE / "hook"
_FOLDER_PREFIX = "vsketch-"
_COMMAND_FILE = "command.json"


@dataclass(frozen=True)
class RecordingOptions:
    """What to record: steps first <= s < last, of those every nth, at most so many bytes of logs a rank.

    `stop_after` ends all ranks together, with status 0, after that many optimizer steps.
    """

    first_step: int | None = None
    last_step: int | None = None
    every: int = 1
    max_bytes: int = 1 << 30
    stop_after: int | None = None
    armed: bool = False
    scratch: Path | None = None
    kvstore: KvJob | None = None

    def variables(self, folder: Path) -> dict[str, str]:
        """Environment of the ranks, see ``native/vsketch.h``."""
        chosen = {"VSKETCH_DIR": str(folder), "VSKETCH_MAX_BYTES": str(self.max_bytes)}
        if self.first_step is not None or self.last_step is not None:
            last = 2**31 - 1 if self.last_step is None else self.last_step
            chosen["VSKETCH_STEPS"] = f"{self.first_step or 0}:{last}"
        if self.every > 1:
            chosen["VSKETCH_EVERY"] = str(self.every)
        if self.armed:
            chosen["VSKETCH_ARMED"] = "1"
        if self.stop_after is not None:
            chosen["VSKETCH_STOP_AFTER"] = str(self.stop_after)
        return chosen


@dataclass
class Recorded:
    """Outcome of a traced command: its exit status, the trace (None when nothing was recorded) and sentences
    for the user. `kept` is the folder of the raw logs where ranks are missing and may be collected later.
    """

    status: int
    trace: Trace | None
    notes: list[str] = field(default_factory=list)
    kept: Path | None = None


def rank_environment(folder: Path, options: RecordingOptions) -> launcher.RankEnvironment:
    """What the ranks need to be recorded into `folder`.

    Raises UserError when the native library is not built.
    """
    if not LIBRARY.exists():
        raise UserError(
            f"{LIBRARY} is not built; run 'python setup.py native' or reinstall with a C compiler"
        )
    return launcher.RankEnvironment(
        observe=(str(LIBRARY),), python_path=(str(HOOK_FOLDER),), variables=options.variables(folder)
    )


def record(
    command: Sequence[str],
    target: Path,
    options: RecordingOptions,
    say: Callable[[str], None] = lambda _: None,
) -> Recorded:
    """Run `command` with its ranks traced and write the Trace to folder `target`.

    An older trace at `target` is replaced only by a whole new one. The raw logs lie in a folder of their own
    below ``options.scratch`` (default: the system's temporary folder), with the same path on every host.

    Raises UserError when the command is not found or the trace cannot be written.
    """
    check_target(target)
    folder = _new_folder(options.scratch)
    keep = False
    try:
        (folder / _COMMAND_FILE).write_text(json.dumps(list(command)), encoding="utf-8")
        status, kind, problems = _run(command, folder, options, say)
        recording = read_recording(folder)
        if not recording:
            return Recorded(status, None, [*problems, _why_nothing(folder, kind, status)])
        say("reading the logs")
        trace = convert(recording, target, list(command))
        keep = bool(trace.meta.missing_ranks)
        return Recorded(status, trace, [*problems, *trace.meta.notes], folder if keep else None)
    except UserError:
        keep = _holds_logs(folder)
        if keep:
            say(f"the raw logs are kept in {folder}")
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _run(
    command: Sequence[str], folder: Path, options: RecordingOptions, say: Callable[[str], None]
) -> tuple[int, launcher.LauncherKind, list[str]]:
    """Status of the command, who launched it, and what could not be brought here."""
    ranks = rank_environment(folder, options)
    if options.kvstore is None:
        launch = launcher.prepare(command, ranks)
        return launcher.run(launch), launch.kind, []
    kind = launcher.recognise(command)
    status = run_kvstore_job(command, options.kvstore, ranks)
    problems = []
    for host in options.kvstore.other_hosts:
        say(f"fetching from {host}")
        problem = fetch_recording(folder, host, options.kvstore.shell)
        if problem:
            problems.append(f"the logs of host {host} cannot be fetched: {problem}")
        else:
            remove_recording(folder, host, options.kvstore.shell)
    return status, kind, problems


def command_of(folder: Path) -> list[str]:
    """The command whose raw recording is in `folder`; empty where it is not known."""
    try:
        words = json.loads((folder / _COMMAND_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(word) for word in words]


def _holds_logs(folder: Path) -> bool:
    return any(place.is_dir() for place in folder.iterdir())


def _new_folder(scratch: Path | None) -> Path:
    base = Path(tempfile.gettempdir()) if scratch is None else scratch.absolute()
    try:
        return Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getuid()}-", dir=base))
    except OSError as error:
        raise UserError(
            f"cannot write logs below {base}: {error.strerror}; name a local folder with --scratch"
        ) from None


def _why_nothing(folder: Path, kind: launcher.LauncherKind, status: int) -> str:
    if status - 128 in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        return "nothing was recorded: the command was stopped first"
    if _holds_logs(folder):
        return "nothing was recorded: no rank reached a traced call; look at the command's own messages above"
    if kind is launcher.LauncherKind.DIRECT:
        return (
            "nothing was recorded: the command started no process that uses MXNet with Horovod or MPI; "
            "put 'vsketchdlc trace --' right before mpirun or horovodrun"
        )
    return (
        "nothing was recorded: no rank on this host loaded MPI or Horovod with MXNet; does the script call "
        "hvd.init(), and is vsketchdlc installed at the same path on every host?"
    )
