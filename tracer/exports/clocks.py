"""Which hosts can be drawn in one picture: those whose clocks are known against each other."""

from __future__ import annotations

from dataclasses import dataclass

from ..trace import Trace


@dataclass(frozen=True)
class ClockGroup:
    """Hosts on one clock; `hosts` is None for all hosts of the trace, `label` names the picture if there are more."""

    hosts: list[str | None] | None
    label: str | None = None


def groups_with_one_clock(trace: Trace) -> tuple[list[ClockGroup], str | None]:
    """The pictures to draw, and the sentence that says why there is more than one (None when there is one)."""
    rows = trace.query("select distinct host from events order by host nulls first")["host"]
    hosts: list[str | None] = [host if isinstance(host, str) else None for host in rows]
    unknown = {host.name for host in trace.meta.hosts if host.clock_offset_ns is None}
    apart = [host for host in hosts if host in unknown]
    together = [host for host in hosts if host not in unknown]
    if len(hosts) < 2 or not apart:
        return [ClockGroup(None)], None
    groups = [ClockGroup(together)] if together else []
    groups += [ClockGroup([host], label=host) for host in apart]
    names = ", ".join(str(host) for host in apart)
    return (
        groups,
        f"one picture for each clock: the clock of {names} could not be aligned with the other hosts'",
    )
