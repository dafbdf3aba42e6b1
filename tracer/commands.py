"""Command line of the tracer part."""

from __future__ import annotations

import typer

from .collect_command import collect
from .exports.command import export
from .imports.command import import_
from .record_command import trace
from .report_command import report


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command(context_settings={"allow_interspersed_args": False})(trace)
    app.command()(collect)
    app.command()(report)
    app.command()(export)
    app.command("import")(import_)
