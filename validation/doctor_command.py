"""The ``doctor`` command: the findings as a table or JSON, exit 1 when something needed is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import answer
from ..errors import BadNews


def doctor(
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write the findings as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what is not good.")] = False,
) -> None:
    """Print what works on this machine, and how to fix what does not; exit 1 if something needed is missing.

    Example: vsketchdlc doctor
    """
    from rich.markup import escape

    from . import doctor as doctor_module

    findings = doctor_module.examine()
    good = doctor_module.is_good(findings)
    if json_file is not None:
        rows = [finding.to_json() for finding in findings]
        answer.write_json(
            json_file, {"format_version": doctor_module.FORMAT_VERSION, "good": good, "checks": rows}
        )
    if json_file != "-":
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            if quiet and finding.state is doctor_module.State.GOOD:
                continue
            answer.stdout.print(f"{finding.state.value:8} {finding.name:{width}}  {escape(finding.found)}")
            if finding.state is not doctor_module.State.GOOD:
                answer.stdout.print(f"{'':8} {'':{width}}  for {finding.serves}: {escape(finding.fix)}")
    if not good:
        missing = [f.name for f in findings if f.needed and f.state is doctor_module.State.MISSING]
        raise BadNews(f"missing: {', '.join(missing)}; the lines above say how to get it")
