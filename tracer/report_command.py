"""The ``report`` command."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .. import answer


class By(str, Enum):
    """What the report's table has a row for."""

    TIME = "time"
    STEP = "step"
    LAYER = "layer"
    TENSOR = "tensor"
    FLOW = "flow"
    RANK = "rank"


def report(
    trace: Annotated[Path, typer.Argument(help="Folder of the trace.")] = Path("trace"),
    by: Annotated[By, typer.Option(help="What to list.")] = By.TIME,
    json: Annotated[
        str | None, typer.Option("--json", help="Write all of it to FILE, or - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no tables.")] = False,
) -> None:
    """Tell where the time of a step goes.

    Example: vsketchdlc report trace/ --by layer
    """
    from .report import print_report
    from .report import report as make
    from .trace import Trace

    opened = Trace.open(trace)
    content = make(opened)
    if json is not None:
        answer.write_json(json, content)
    if not quiet and json != "-":
        print_report(content, opened, answer.stdout, by.value)
