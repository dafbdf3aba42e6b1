"""The user's launch command below `run`: started, listened to, its exit status handed on."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn

from .. import answer
from ..errors import UserError
from ..tracer.launcher import Launch, RankEnvironment, prepare
from ..tracer.launcher import run as run_in_foreground
from .job_kind import QUIET_S, at_the_end, before_the_start, while_silent
from .reporting import VARIABLE, Reports
from .settings import LaneSettings

FORMAT_VERSION = 1


def run_stock(command: list[str], ranks: RankEnvironment) -> NoReturn:
    """Become the user's command, with nothing preloaded. Raises UserError when it cannot be started."""
    launch = prepare(command, ranks)
    try:
        os.execvpe(launch.command[0], launch.command, launch.environment)
    except OSError as error:
        raise UserError(f"cannot start '{launch.command[0]}': {error.strerror}") from None


def run_supervised(command: list[str], ranks: RankEnvironment, settings: LaneSettings) -> int:
    """Exit status of `command`, whose ranks get `ranks` and report here (128 + signal when a signal ended it).

    Says on stderr, unless quiet, when its gradients will not or did not come through MPI. Writes the counters where
    `settings.json` says. Raises UserError when the command cannot be started.
    """
    reports = Reports()
    variables = {**ranks.variables, VARIABLE: reports.variable}
    launch = prepare(command, RankEnvironment(ranks.preload, ranks.python_path, variables, ranks.observe))

    def say(line: str | None) -> None:
        if line and not settings.quiet:
            print(f"vsketchdlc: {line}", file=sys.stderr, flush=True)

    warned = before_the_start(launch.kind, command, launch.environment)
    say(warned)

    def look() -> None:
        if not reports.started.is_set():
            say(while_silent(QUIET_S))

    silence = threading.Timer(QUIET_S, look)
    silence.daemon = True
    reports.listen()
    if warned is None:
        silence.start()
    try:
        status = run_in_foreground(launch)
    finally:
        silence.cancel()
        reports.close()
    note = at_the_end(launch.kind, command, reports.ranks)
    if warned is None and status == 0:
        say(note)
    if settings.json is not None:
        answer.write_json(settings.json, _as_json(launch, status, reports, warned or note))
    return status


def _as_json(launch: Launch, status: int, reports: Reports, note: str | None) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "launcher": launch.kind.value,
        "status": status,
        "ranks_of_jobs": reports.ranks,
        "note": note,
        "counters": reports.counters,
    }
