"""Command line of the tracer part."""

from __future__ import annotations

import typer

from .exports.command import export


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command()(export)
