"""Command line of the model part."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
