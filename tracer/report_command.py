"""The ``report`` command."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .. import answer
from ..units import parse_bits_per_s


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
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write an HTML page to FILE.", metavar="FILE")
    ] = None,
    flow_cap: Annotated[
        str | None, typer.Option(help="Rate limit of a flow, to compare with.", metavar="RATE")
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write all of it to FILE, or - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no tables.")] = False,
) -> None:
    """Tell where the time of a step goes.

    Example: vsketchdlc report trace/ -o report.html --flow-cap 1Gbit/s
    """
    from .report import print_report
    from .report import report as make
    from .trace import Trace

    cap = None if flow_cap is None else parse_bits_per_s(flow_cap, what="--flow-cap")
    opened = Trace.open(trace)
    content = make(opened, cap)
    if output is not None:
        from .report_page import report_page

        answer.write_text_whole(output, report_page(content, opened, cap))
    if json is not None:
        answer.write_json(json, content)
    if not quiet and json != "-":
        print_report(content, opened, answer.stdout, by.value)
    if output is not None and not quiet:
        answer.stderr.print(f"vsketchdlc: written: {output}")
