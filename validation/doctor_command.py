"""The ``doctor`` command: the findings as a table or JSON, exit 1 when something needed is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .. import answer
from ..errors import BadNews, UserError
from ..units import format_bits_per_s, format_seconds, parse_seconds

if TYPE_CHECKING:
    from ..fasthvd.flow_probe import FlowProbe
    from ..fasthvd.readiness import Finding


def doctor(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Your launch command: its ranks are examined, not run.", metavar="-- CMD..."),
    ] = None,
    probe: Annotated[
        str | None, typer.Option(help="Measure one TCP flow and several between hosts.", metavar="HOSTS")
    ] = None,
    seconds: Annotated[str, typer.Option(help="With --probe: time a measurement takes, e.g. 2s.")] = "2s",
    iface: Annotated[
        str, typer.Option(help="Interfaces or networks, e.g. eth0.", envvar="FASTHVD_IFACE")
    ] = "",
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write the findings as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what is not good.")] = False,
) -> None:
    """Print what works on this machine, and how to fix what does not; exit 1 if something needed is missing.

    With --probe it measures the network between hosts instead; with a launch command, what its ranks get.

    Example: vsketchdlc doctor

    Example: vsketchdlc doctor --probe a,b,c

    Example: vsketchdlc doctor -- mpirun -np 4 -H a,b,c,d python train.py
    """
    from ..fasthvd.readiness import State
    from . import doctor as doctor_module

    if probe is not None:
        if command:
            raise UserError("give --probe HOSTS or a launch command, not both")
        _probe(probe, parse_seconds(seconds, what="--seconds"), iface, json_file, quiet)
        return
    findings = _of_job(command, iface) if command else doctor_module.examine()
    good = doctor_module.is_good(findings)
    if json_file is not None:
        rows = [finding.to_json() for finding in findings]
        answer.write_json(
            json_file, {"format_version": doctor_module.FORMAT_VERSION, "good": good, "checks": rows}
        )
    if json_file != "-":
        _print(findings, quiet)
    if not good:
        missing = [f.name for f in findings if f.needed and f.state is State.MISSING]
        raise BadNews(f"missing: {', '.join(missing)}; the lines above say how to get it")


def _of_job(command: Sequence[str], iface: str) -> list[Finding]:
    from ..fasthvd.flow_probe import probe_command
    from ..fasthvd.readiness import of_job

    return of_job(probe_command(command, (1, 4), iface=iface))


def _print(findings: Sequence[Finding], quiet: bool) -> None:
    from rich.markup import escape

    from ..fasthvd.readiness import State

    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        if quiet and finding.state is State.GOOD:
            continue
        answer.stdout.print(f"{finding.state.value:8} {finding.name:{width}}  {escape(finding.found)}")
        if finding.state is not State.GOOD:
            answer.stdout.print(f"{'':8} {'':{width}}  for {finding.serves}: {escape(finding.fix)}")


def _probe(hosts: str, seconds: float, iface: str, json_file: str | None, quiet: bool) -> None:
    from ..fasthvd.flow_probe import FLOW_COUNTS, probe_hosts

    if not 0.1 <= seconds <= 60:
        raise UserError(f"--seconds {seconds:g} s is not possible: choose 0.1s to 60s")
    if not quiet:
        counts = ", ".join(str(count) for count in FLOW_COUNTS)
        answer.stderr.print(f"vsketchdlc: {counts} flows between {hosts}, {format_seconds(seconds)} each")
    measured = probe_hosts(hosts, iface=iface, seconds=seconds)
    if json_file is not None:
        answer.write_json(json_file, measured.to_json())
    if json_file != "-":
        _print_rates(measured)


def _print_rates(measured: FlowProbe) -> None:
    from rich.table import Table

    table = Table("flows", "payload", "against 1", "resent", "round trip", "cores", "slowest")
    for rate in measured.rates:
        table.add_row(
            str(rate.flows),
            format_bits_per_s(rate.bits_per_s),
            f"{rate.bits_per_s / measured.rates[0].bits_per_s:.2f} x",
            str(rate.retransmits),
            format_seconds(rate.round_trip_s),
            f"{rate.cpu_cores:.2f}",
            rate.slowest_host,
        )
    answer.stdout.print(table)
    used = ", ".join(f"{host} {name}" for host, name in measured.interfaces.items())
    answer.stdout.print(f"Interfaces: {used}. Each host sends to the next, all at once, as lanes do.")
    for sentence in measured.meaning():
        answer.stdout.print(f"{sentence[0].upper()}{sentence[1:]}.")
