"""Command line of the fasthvd part."""

from __future__ import annotations

import typer

from .run_command import run
from .tune_command import tune


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command(context_settings={"allow_interspersed_args": False})(run)
    app.command(context_settings={"allow_interspersed_args": False})(tune)
