"""Events of the Chrome Trace Event format as importers meet them: nested begins and ends, pairs, names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .event_rows import EventRows, text, time_ns

UNBALANCED = "ends without a begin or begins without an end"
BAD_TIMES = "events without a usable time"


@dataclass
class Interval:
    """One interval of one row of the file; `depth` is 0 for the outermost."""

    name: str
    category: str
    row: Hashable
    start_ns: int
    end_ns: int
    depth: int
    arguments: dict[str, Any] = field(default_factory=dict)


def key_of(value: Any) -> Hashable:
    """`value` as something to look up by: pids and ids are numbers or texts, and sometimes neither."""
    return value if isinstance(value, int | str) else repr(value)[:100]


def arguments_of(event: dict[str, Any]) -> dict[str, Any]:
    """The event's ``args``, empty when they are none."""
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def names_of(events: Iterable[dict[str, Any]], what: str) -> dict[Hashable, str]:
    """Names from metadata events: by pid for ``process_name``, by (pid, tid) for ``thread_name``."""
    names: dict[Hashable, str] = {}
    for event in events:
        if event.get("ph") == "M" and event.get("name") == what:
            name = text(arguments_of(event).get("name"))
            if name:
                pid = key_of(event.get("pid"))
                names[pid if what == "process_name" else (pid, key_of(event.get("tid")))] = name
    return names


def nested(events: Iterable[dict[str, Any]], rows: EventRows, phases: str = "BE") -> Iterator[Interval]:
    """Intervals from begin and end events of each (pid, tid), last begun first ended.

    With `phases` ``"be"`` they are the asynchronous ones, kept apart by category, id and name as well. What does
    not pair is counted in `rows`.
    """
    begin, end = phases[0], phases[1]
    open_events: dict[Hashable, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for event in events:
        phase = event.get("ph")
        if phase not in (begin, end):
            continue
        at_ns = time_ns(event.get("ts"))
        if at_ns is None:
            rows.dropped[BAD_TIMES] += 1
            continue
        row: Hashable = (key_of(event.get("pid")), key_of(event.get("tid")))
        place = row
        if phases == "be":
            place = (row, key_of(event.get("cat")), key_of(event.get("id")), key_of(event.get("name")))
        stack = open_events[place]
        if phase == begin:
            stack.append((at_ns, event))
        elif not stack:
            rows.dropped[UNBALANCED] += 1
        else:
            start_ns, first = stack.pop()
            yield Interval(
                text(first.get("name")) or "",
                text(first.get("cat")) or "",
                row,
                start_ns,
                max(start_ns, at_ns),
                len(stack),
                {**arguments_of(first), **arguments_of(event)},
            )
    unclosed = sum(len(stack) for stack in open_events.values())
    if unclosed:
        rows.dropped[UNBALANCED] += unclosed
