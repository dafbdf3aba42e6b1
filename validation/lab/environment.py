"""The environment of commands in a lab: an unchanged mpirun or horovodrun finds the other hosts with it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from .network import INTERFACE
from .state import StateFolder

# What the owner's login would also have on the other hosts. Nothing of a job (LD_PRELOAD, OMPI_*, ...) is here:
# what ranks need there must get there by the launcher, as it would over ssh.
_LOGIN_VARIABLES = (
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "VIRTUAL_ENV",
    "PATH",
)


def mpi_variables(agent: Path) -> dict[str, str]:
    """Variables for Open MPI 5 (PRRTE): how to reach the other hosts, and over which interface to talk."""
    return {
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_prte_if_include": INTERFACE,
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_btl": "tcp,self,sm",
        "OMPI_MCA_btl_tcp_if_include": INTERFACE,
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HOROVOD_GLOO_IFACE": INTERFACE,
        "DMLC_INTERFACE": INTERFACE,
        "OMP_NUM_THREADS": "1",
        "VSKETCHDLC_LAB": agent.parent.parent.name,
    }


def write_programs(state: StateFolder) -> Path:
    """Write ``bin/ssh`` and ``bin/rsh`` into the state folder; returns the agent's path (free of spaces)."""
    folder = state.path / "bin"
    folder.mkdir()
    program = Path(__file__).with_name("agent.py")
    words = [sys.executable, "-I", "-S", str(program), "rsh", str(state.path)]
    for name in ("ssh", "rsh"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        script.chmod(0o755)
    return folder / "rsh"


def command_environment(
    agent: Path, own: Mapping[str, str], asked: Mapping[str, str] | None
) -> dict[str, str]:
    """The environment of a command: the owner's, over it the lab's, over it what the caller asked for.

    In PATH the folder of the lab's ssh comes first, then the owner's virtual environment or the PATH asked for.
    """
    whole = {**own, **mpi_variables(agent), **(asked or {})}
    path = (asked or {}).get("PATH") or _own_path(own)
    whole["PATH"] = f"{agent.parent}:{path}"
    for name in ("TMPDIR", "TEMP", "TMP"):
        # Every host has its own /tmp; a folder elsewhere would be shared by all hosts by accident.
        if name not in (asked or {}):
            whole.pop(name, None)
    return whole


def login_environment(agent: Path, own: Mapping[str, str]) -> dict[str, str]:
    """The environment that a command gets when it is started from another host, as through ssh."""
    login = {name: own[name] for name in _LOGIN_VARIABLES if name in own}
    return command_environment(agent, login, None)


def _own_path(own: Mapping[str, str]) -> str:
    """The owner's search path, with its virtual environment in front: the same python and mpirun on every host."""
    path = own.get("PATH", os.defpath)
    return path if sys.prefix == sys.base_prefix else f"{sys.prefix}/bin:{path}"
