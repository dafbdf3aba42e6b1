"""Command line of the model part: ``calibrate`` and ``whatif``."""

from __future__ import annotations

import typer

from .calibrate_command import calibrate_command
from .whatif_command import whatif_command


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command("calibrate")(calibrate_command)
    app.command("whatif")(whatif_command)
