"""The user's own launch command: recognise it, give its ranks (and only them) variables, run it cleanly.

Everything that has to reach the ranks, on every host, goes through `RankEnvironment`:

* Open MPI: ``OMPI_MCA_mca_base_env_list`` (also works when mpirun hides in a script of the user's); Open MPI
  refuses it together with ``-x``, so where the user has ``-x`` the variables are added as ``-x`` too.
* MPICH (hydra): ``-genv NAME VALUE``.
* horovodrun over MPI: ``--mpi-args``; with Open MPI 5 also ``--binding-args``, without which it does not start at all.
* anything else (a bare ``python train.py``, Slurm, a shell script): the plain environment.

A nested ``vsketchdlc`` (``vsketchdlc trace -- vsketchdlc run --aux 3 -- mpirun ...``) hands its part down in
one variable, and the innermost one applies the whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ..errors import UserError

NESTED_VARIABLE = "VSKETCHDLC_RANK_ENVIRONMENT"
_ENV_LIST = "OMPI_MCA_mca_base_env_list"


class LauncherKind(Enum):
    """Who starts the ranks."""

    OPEN_MPI = "Open MPI"
    MPICH = "MPICH"
    HOROVODRUN_MPI = "horovodrun over MPI"
    HOROVODRUN_GLOO = "horovodrun over Gloo"
    VSKETCHDLC = "vsketchdlc"
    DIRECT = "the command itself"


@dataclass(frozen=True)
class RankEnvironment:
    """What the ranks get: libraries to preload (first one first), folders for PYTHONPATH, plain variables.

    ``observe`` are libraries that only watch; they are preloaded before all others.
    """

    preload: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    observe: tuple[str, ...] = ()

    def joined(self, other: RankEnvironment) -> RankEnvironment:
        """Both, with `other` (the inner command's) winning on variables.

        What observes comes before what acts: the tracer must see a call that the lanes answer themselves.
        """
        return RankEnvironment(
            other.preload + self.preload,
            other.python_path + self.python_path,
            {**self.variables, **other.variables},
            self.observe + other.observe,
        )

    def flat(self, environment: Mapping[str, str]) -> dict[str, str]:
        """As plain variables, in front of what `environment` has in the two search orders."""
        flat = dict(self.variables)
        libraries = [*self.observe, *self.preload]
        if libraries:
            before = environment.get("LD_PRELOAD", "").replace(":", " ").split()
            flat["LD_PRELOAD"] = ":".join([*map(_preload_word, libraries), *before])
        folders = [str(Path(library).parent) for library in libraries if _preload_word(library) != library]
        if folders:
            flat["LD_LIBRARY_PATH"] = _search_order(folders, environment.get("LD_LIBRARY_PATH", ""))
        if self.python_path:
            flat["PYTHONPATH"] = _search_order(self.python_path, environment.get("PYTHONPATH", ""))
        return flat


def _preload_word(library: str) -> str:
    """What LD_PRELOAD calls `library`. A blank separates its entries: such a path is left to LD_LIBRARY_PATH."""
    blank = any(letter.isspace() for letter in library)
    if ":" in library or (blank and ";" in library):
        raise UserError(
            f"vsketchdlc cannot be preloaded from '{Path(library).parent}': install it in a folder without "
            "':' and ';' in its name"
        )
    return Path(library).name if blank else library


def _search_order(first: Sequence[str], before: str) -> str:
    """`first`, then the user's own order to the letter: an empty place in it means the working folder."""
    return ":".join([*dict.fromkeys(first), *([before] if before else [])])


@dataclass(frozen=True)
class Launch:
    """A command ready to start: its words and its whole environment."""

    command: list[str]
    environment: dict[str, str]
    kind: LauncherKind


def recognise(command: Sequence[str]) -> LauncherKind:
    """Which launcher `command` starts.

    Raises UserError when the command is empty or its program is not found.
    """
    if not command:
        raise UserError(
            "no command given: put your own after '--', as in 'vsketchdlc trace -- mpirun -np 4 python train.py'"
        )
    program = shutil.which(command[0])
    if program is None:
        raise UserError(
            f"command '{command[0]}' is not found; check its spelling, or activate the environment that has it"
        )
    name = Path(command[0]).name
    if name == "vsketchdlc" or list(command[1:3]) == ["-m", "vsketchdlc"]:
        return LauncherKind.VSKETCHDLC
    if name == "horovodrun":
        return LauncherKind.HOROVODRUN_GLOO if "--gloo" in command else LauncherKind.HOROVODRUN_MPI
    if name in ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun.openmpi", "mpirun.mpich"):
        return _mpi_family(program)
    return LauncherKind.DIRECT


def _mpi_family(program: str) -> LauncherKind:
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"'{program} --version' does not answer ({error}); repair the MPI installation"
        ) from None
    text = answer.stdout + answer.stderr
    if "HYDRA" in text or "MPICH" in text:
        return LauncherKind.MPICH
    return LauncherKind.OPEN_MPI


def prepare(
    command: Sequence[str], ranks: RankEnvironment, environment: Mapping[str, str] | None = None
) -> Launch:
    """`command` with its ranks given `ranks`; everything else of it unchanged.

    Raises UserError when the command is not found.
    """
    inherited = dict(os.environ if environment is None else environment)
    kind = recognise(command)
    ranks = _from_json(inherited.pop(NESTED_VARIABLE, None)).joined(ranks)
    words = list(command)
    if kind is LauncherKind.VSKETCHDLC:
        return Launch(words, {**inherited, NESTED_VARIABLE: _to_json(ranks)}, kind)
    flat = ranks.flat(inherited)
    own_list = _place_of_own_list(words) if kind is LauncherKind.OPEN_MPI else None
    if own_list is not None and not _awkward(flat):
        # On the command line it would win over the variable.
        words[own_list] = ";".join([words[own_list], *(f"{name}={value}" for name, value in flat.items())])
    elif kind is LauncherKind.OPEN_MPI and not _uses_x(words) and not _awkward(flat):
        before = [part for part in inherited.get(_ENV_LIST, "").split(";") if part]
        # The launcher gets the plain variables too (harmless), but never the preload.
        inherited[_ENV_LIST] = ";".join([*before, *(f"{name}={value}" for name, value in flat.items())])
    elif kind is LauncherKind.OPEN_MPI:
        words[1:1] = [word for name, value in flat.items() for word in ("-x", f"{name}={value}")]
    elif kind is LauncherKind.MPICH:
        words[1:1] = [word for name, value in flat.items() for word in ("-genv", name, value)]
    elif kind is LauncherKind.HOROVODRUN_MPI:
        words = _with_mpi_args(
            words, " ".join(f"-x {shlex.quote(f'{name}={value}')}" for name, value in flat.items())
        )
        words = _with_binding_args(words)
    else:
        inherited.update(flat)
    return Launch(words, inherited, kind)


def _uses_x(words: Sequence[str]) -> bool:
    return "-x" in words


def _place_of_own_list(words: Sequence[str]) -> int | None:
    """Where the value of the user's own ``--mca mca_base_env_list VALUE`` is, if there is one."""
    for place in range(1, len(words) - 1):
        if words[place] == "mca_base_env_list" and words[place - 1].lstrip("-") in ("mca", "omca", "gmca"):
            return place + 1
    return None


def _awkward(flat: Mapping[str, str]) -> bool:
    return any(";" in value for value in flat.values())


def _with_mpi_args(words: list[str], extra: str) -> list[str]:
    for place, word in enumerate(words):
        if word == "--mpi-args" and place + 1 < len(words):
            return [*words[: place + 1], f"{words[place + 1]} {extra}", *words[place + 2 :]]
        if word.startswith("--mpi-args="):
            return [*words[:place], f"{word} {extra}", *words[place + 1 :]]
    return [words[0], f"--mpi-args={extra}", *words[1:]]


def _with_binding_args(words: list[str]) -> list[str]:
    """horovodrun 0.28 says ``-bind-to none``, and Open MPI 5 then looks for a program called "none"."""
    if any(word.split("=")[0] == "--binding-args" for word in words) or not _open_mpi_5():
        return words
    return [words[0], "--binding-args=--bind-to none --map-by slot", *words[1:]]


def _open_mpi_5() -> bool:
    program = shutil.which("mpirun")
    if program is None:
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
        return re.search(r"Open MPI\) ([5-9]|\d\d)\.", answer.stdout) is not None
    return False


def _to_json(ranks: RankEnvironment) -> str:
    parts = [list(ranks.preload), list(ranks.python_path), dict(ranks.variables), list(ranks.observe)]
    return json.dumps(parts, separators=(",", ":"))


def _from_json(text: str | None) -> RankEnvironment:
    if not text:
        return RankEnvironment()
    preload, python_path, variables, observe = json.loads(text)
    return RankEnvironment(tuple(preload), tuple(python_path), variables, tuple(observe))


def run(launch: Launch, **popen: object) -> int:
    """Run `launch` in the foreground and return its exit status (128 + signal when a signal ended it).

    SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are handed on; Ctrl-C reaches the command by itself, as it shares the terminal, and
    gives 130, also where the command has a status of its own for it (mpirun: 1), unless it ends well all the same. When
    this function leaves, whatever the cause, the command has been ended; when this process is killed, it gets SIGTERM.
    """
    try:
        process = subprocess.Popen(  # type: ignore[call-overload]
            launch.command, env=launch.environment, **{"preexec_fn": ends_with_us(), **popen}
        )
    except OSError as error:
        raise UserError(f"cannot start '{launch.command[0]}': {error.strerror}") from None
    old = {
        number: signal.signal(number, lambda got, _: process.send_signal(got))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    }
    stopped: list[int] = []
    old[signal.SIGINT] = signal.signal(signal.SIGINT, lambda got, _: stopped.append(got))
    try:
        status: int = process.wait()
    finally:
        end(process)
        for number, handler in old.items():
            signal.signal(number, handler)
    if stopped and status != 0:
        return 128 + signal.SIGINT
    return 128 - status if status < 0 else status


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def ends_with_us() -> Callable[[], None]:
    """For Popen's `preexec_fn`: the kernel sends the new process SIGTERM when this one dies, by SIGKILL too.

    A launcher takes SIGTERM as the order to end its ranks, on all hosts.
    """
    return functools.partial(_end_with, os.getpid())


def _end_with(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:  # it was killed before the line above
        os.kill(os.getpid(), signal.SIGTERM)


def run_own(
    words: Sequence[str], environment: Mapping[str, str], patience_s: float = 30.0, **popen: Any
) -> int:
    """Run another ``vsketchdlc`` (a trial, a tuning) and return its exit status; negative for a signal.

    Ctrl-C reaches it too, as it shares the terminal: it gets `patience_s` to end its ranks and to clear up, before
    KeyboardInterrupt goes on. (`subprocess.run` would kill it after a quarter of a second, and its logs would stay.)
    When this process is killed, it gets SIGTERM.
    """
    process = subprocess.Popen(list(words), env=dict(environment), preexec_fn=ends_with_us(), **popen)
    try:
        return process.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience_s)
        raise
    finally:
        end(process)


def end(process: subprocess.Popen[Any], patience_s: float = 10.0) -> None:
    """End `process` if it still runs: SIGTERM, so that a launcher can end its ranks, then SIGKILL after `patience_s`."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
