"""Will this job's gradients come through MPI at all? What its command and environment tell before it starts, and what
its ranks have told when it has ended. Each answer is one sentence that says what helps, or None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..tracer.launcher import LauncherKind

HELP = "start it with mpirun or 'horovodrun --mpi'"
#: without a word from any rank for so long, `run` says that it has not seen MPI yet
QUIET_S = 60.0
_CHOICES = ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS")
_CHOICE_WORD = re.compile(
    rf"(?:^|.*[;\s'\"])?({'|'.join(_CHOICES)})=(gloo|ccl)\b.*", re.IGNORECASE | re.DOTALL
)


def before_the_start(kind: LauncherKind, words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Gloo, oneCCL or parameter servers instead of MPI, as far as the command and its environment say so."""
    if kind is LauncherKind.HOROVODRUN_GLOO:
        return _carried_by("Gloo ('--gloo')", f"{HELP}, without '--gloo'")
    for name, value in _choices(words, environment):
        if value.lower() in ("gloo", "ccl"):
            library = "Gloo" if value.lower() == "gloo" else "oneCCL"
            return _carried_by(f"{library} ({name}={value})", f"{HELP}, without {name}={value}")
    if "DMLC_PS_ROOT_URI" in environment or "DMLC_ROLE" in environment:
        return _carried_by(
            "MXNet's parameter servers (DMLC_PS_ROOT_URI)",
            "use Horovod's DistributedTrainer instead of a dist_* KVStore",
        )
    return None


def _choices(words: Sequence[str], environment: Mapping[str, str]) -> list[tuple[str, str]]:
    found = [(name, environment[name]) for name in _CHOICES if name in environment]
    for place, word in enumerate(words):
        match = _CHOICE_WORD.match(word)
        if match:
            found.append((match.group(1), match.group(2)))
        elif word in _CHOICES and place + 1 < len(words):  # MPICH: -genv NAME VALUE
            found.append((word, words[place + 1]))
    return found


def _carried_by(what: str, remedy: str) -> str:
    return f"warning: this job's gradients go through {what}, and lanes work below MPI: they will carry nothing; {remedy}"


def while_silent(seconds: float) -> str:
    """No rank has initialised MPI for so long."""
    return (
        f"no rank has initialised MPI in {seconds:.0f} s; if the training has begun, its gradients go through Gloo, NCCL or "
        f"parameter servers, and the lanes carry nothing: {HELP}"
    )


def at_the_end(kind: LauncherKind, command: Sequence[str], ranks: Sequence[int]) -> str | None:
    """`ranks`: sizes of the MPI jobs that the command started, as their rank 0 told."""
    name = Path(command[0]).name
    if not ranks:
        if kind in (LauncherKind.DIRECT, LauncherKind.VSKETCHDLC):
            return (
                f"'{name}' did not initialise MPI, so there was nothing for lanes to do: put the whole launch command behind "
                "'--', as in 'vsketchdlc run -- mpirun -np 4 python train.py'"
            )
        return (
            f"no rank of '{name}' initialised MPI with the lanes' library, so there was nothing for lanes to do: does the script "
            "use Horovod, and was Horovod built with MPI ('horovodrun --check-build')?"
        )
    if max(ranks) == 1 and len(ranks) > 1:
        return (
            f"'{name}' started {len(ranks)} jobs of one rank each: its MPI is another one than the ranks' Horovod was built with, "
            "so nothing was reduced between them"
        )
    if max(ranks) == 1:
        return f"'{name}' had one rank, so there was nothing for lanes to do"
    return None
