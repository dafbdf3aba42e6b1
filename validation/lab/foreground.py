"""One command in a lab of its own, in the foreground of the terminal: what ``vsketchdlc lab run`` does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from ... import answer
from ...errors import UserError
from .lab import Lab
from .spec import LabSpec


def run_in_foreground(spec: LabSpec, command: Sequence[str]) -> int:
    """Run `command` on h0 of a lab made for it; returns its exit status, 128 + n when signal n ended it.

    Ctrl-C, SIGTERM and SIGHUP go to the command, and the lab ends when the command has ended. Raises UserError
    when the lab cannot be made or the command cannot be started.
    """
    with Lab(spec) as lab:
        if lab.find_program(command[0]) is None:
            raise UserError(f"the command '{command[0]}' is not found or not executable; check its spelling")
        process = lab.start(lab.hosts[0], command, stdin=sys.stdin, start_new_session=True)
        # The agent is in a session of its own, so Ctrl-C comes here only, and each signal is passed on once.
        handed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        before = {
            number: signal.signal(number, lambda got, _: process.send_signal(got)) for number in handed_on
        }
        try:
            status = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for collision in lab.collisions():
            answer.stderr.print(f"lab: VOID: {collision}")
    return 128 - status if status < 0 else status
