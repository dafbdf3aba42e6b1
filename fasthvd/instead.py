"""Another program in the ranks of the user's own launch command: the script itself is not started.

Hosts, interfaces and MPI settings are the user's; the ranks are told by the environment which module of
vsketchdlc runs in place of the script (see ``hook/sitecustomize.py``).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError
from ..tracer.launcher import RankEnvironment, end, ends_with_us

HOOK_FOLDER = Path(__file__).parent / "hook"
INSTEAD_VARIABLE = "FASTHVD_INSTEAD"


def instead_of_the_script(module: str, variables: Mapping[str, str]) -> RankEnvironment:
    """What the ranks need to run ``module.main()`` with `variables` in place of the user's script."""
    return RankEnvironment(python_path=(str(HOOK_FOLDER),), variables={INSTEAD_VARIABLE: module, **variables})


def run_bounded(command: list[str], environment: Mapping[str, str], limit_s: float, what: str) -> int:
    """Exit status of `command`, which must end within `limit_s`; its stdout goes to stderr.

    Raises UserError naming `what` when it does not end, or cannot be started.
    """
    try:
        process = subprocess.Popen(
            command, env=environment, stdout=sys.stderr, stdin=subprocess.DEVNULL, preexec_fn=ends_with_us()
        )
    except OSError as error:
        raise UserError(f"cannot start '{command[0]}': {error.strerror}") from None
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{what} did not end within {limit_s:.0f} s: does the command start its ranks when run alone?"
        ) from None
    finally:
        end(process)
