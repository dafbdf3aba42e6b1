"""Command line of the validation part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import answer
from ..errors import UserError
from .demo_command import demo
from .doctor_command import doctor
from .validate_command import validate


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    lab = typer.Typer(
        help="Emulated hosts on this machine: real MPI and TCP over shaped links. Needs root.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    lab.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
        lab_run
    )
    lab.command("clean")(lab_clean)
    app.add_typer(lab, name="lab")
    app.command()(doctor)
    app.command()(demo)
    app.command()(validate)


def lab_run(
    file: Annotated[Path, typer.Argument(metavar="LAB.toml", help="The lab's description.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Runs on host h0.")],
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not print what the lab is and cannot show.")
    ] = False,
) -> int:
    """Run a command on host h0 of a lab that lives as long as the command; exit with its status.

    Example: vsketchdlc lab run examples/lab-two-hosts.toml -- mpirun --bind-to none -np 2 -H h0,h1 python train.py
    """
    from .lab import LabSpec
    from .lab.foreground import run_in_foreground

    words = command[1:] if command[0] == "--" else command
    if not words:
        raise UserError(
            "no command given: put it after '--', as in 'vsketchdlc lab run LAB.toml -- mpirun ...'"
        )
    spec = LabSpec.from_toml(file)
    if not quiet:
        answer.stderr.print(f"lab: {spec.describe()}")
        for line in spec.limits():
            answer.stderr.print(f"lab: {line}")
    return run_in_foreground(spec, words)


def lab_clean() -> None:
    """Remove what labs of ended processes left behind (each start of a lab does this too).

    Example: vsketchdlc lab clean
    """
    from .lab.state import remove_leftovers

    removed = remove_leftovers()
    answer.stdout.print(
        f"{len(removed)} leftover{'' if len(removed) == 1 else 's'} removed {' '.join(removed)}".rstrip()
    )
