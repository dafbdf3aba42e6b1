"""Which part of a trace fits a file of a given size: the choice and the sentence that tells it.

Viewers fail above some size, most without a word, so an export is cut to a limit, in this order: a window of
steps from the first steady one; a shorter window without single sends and receives; one step without the
shortest events. What was cut is always told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb

from ..schema import Kind
from .picture import Picture, Selection
from .timeline import NO_STEP, SOCKETS

FEWEST_STEPS_WITH_SOCKETS = 3
"""A window that would be shorter than this drops single sends and receives instead."""


@dataclass(frozen=True)
class Costs:
    """Bytes that one slice, one arrow (all its points) and one counter value take in the file, about."""

    slice_bytes: int
    arrow_bytes: int
    counter_bytes: int
    text_factor: float
    """How often a slice repeats its names (tensor, layer, flow)."""


@dataclass(frozen=True)
class _StepSize:
    step: int
    bytes: float
    socket_bytes: float


def choose(
    picture: Picture, costs: Costs, limit_bytes: float, wanted_steps: tuple[int, int] | None = None
) -> Selection:
    """The largest part of `picture`, within `wanted_steps`, that should fit into `limit_bytes`."""
    sizes = [size for size in _step_sizes(picture.connection, costs) if _wanted(size.step, wanted_steps)]
    selection = Selection(steps=wanted_steps)
    total = sum(size.bytes + size.socket_bytes for size in sizes)
    if total <= limit_bytes:
        return selection
    numbered = [size for size in sizes if size.step >= 0]
    if wanted_steps is None and len(numbered) > 1:
        with_sockets = _window(
            [(size.step, size.bytes + size.socket_bytes) for size in numbered], limit_bytes
        )
        without = _window([(size.step, size.bytes) for size in numbered], limit_bytes)
        if with_sockets is not None and _length(with_sockets) >= FEWEST_STEPS_WITH_SOCKETS:
            return replace(selection, steps=with_sockets)
        if without is not None:
            return replace(selection, steps=without, sockets=False)
        first = numbered[min(1, len(numbered) - 1)]
        selection = replace(selection, steps=(first.step, first.step))
        sizes = [first]
    total = sum(size.bytes for size in sizes)
    if total <= limit_bytes:
        return replace(selection, sockets=False)
    picture.select(replace(selection, sockets=False))
    shortest = _duration_to_keep(picture.connection, limit_bytes / total)
    return replace(selection, sockets=False, shortest_ns=shortest)


def told(
    picture: Picture, selection: Selection, limit_bytes: float, wanted_steps: tuple[int, int] | None
) -> list[str]:
    """Sentences for the user on what `selection` leaves out, none when it is everything that was asked for."""
    cuts = []
    if selection.steps != wanted_steps and selection.steps is not None:
        first, last = selection.steps
        sql = "select min(step), max(step) from timeline where step >= 0"
        [(least, most)] = picture.connection.execute(sql).fetchall()
        cuts.append(f"steps {first} to {last} of {least} to {most}")
    if not selection.sockets:
        cuts.append("no single socket sends and receives")
    if selection.shortest_ns > 1:
        cuts.append(f"no events shorter than {selection.shortest_ns / 1000:.3g} us")
    if not cuts:
        return []
    limit_mb = limit_bytes / 1e6
    return [
        f"thinned to {limit_mb:.0f} MB: {', '.join(cuts)}; choose others with --steps A:B or lift --max-mb"
    ]


def _wanted(step: int, steps: tuple[int, int] | None) -> bool:
    return steps is None or step == NO_STEP or steps[0] <= step <= steps[1]


def _length(window: tuple[int, int]) -> int:
    return window[1] - window[0] + 1


def _step_sizes(connection: duckdb.DuckDBPyConnection, costs: Costs) -> list[_StepSize]:
    sockets = ", ".join(f"'{kind}'" for kind in SOCKETS)
    texts = " + ".join(f"coalesce(strlen({name}), 0)" for name in ("tensor", "layer", "flow", "peer", "name"))
    rows = connection.execute(
        f"""
        select step_key, coalesce(sum(cost) filter (not socket), 0), coalesce(sum(cost) filter (socket), 0) from (
            select step_key, kind in ({sockets}) as socket,
                {costs.slice_bytes} + {costs.text_factor} * ({texts})
                + case when kind in ('{Kind.DONE}', '{Kind.SOCKET_RECV}') then {costs.arrow_bytes} else 0 end as cost
            from timeline
            union all
            select {NO_STEP}, false, {costs.counter_bytes} from counted_all
        ) group by step_key order by step_key
        """
    ).fetchall()
    return [_StepSize(int(step), float(rest), float(socket)) for step, rest, socket in rows]


def _window(sizes: list[tuple[int, float]], limit_bytes: float) -> tuple[int, int] | None:
    """As many consecutive steps as fit, from the second one on: the first is never a steady one."""
    first = None
    last = None
    spent = 0.0
    for step, size in sizes[1:] if len(sizes) > 2 else sizes:
        if spent + size > limit_bytes:
            break
        first = step if first is None else first
        last = step
        spent += size
    return None if first is None or last is None else (first, last)


def _duration_to_keep(connection: duckdb.DuckDBPyConnection, fraction: float) -> int:
    quantile = min(1.0, max(0.0, 1.0 - fraction))
    [(longest_left_out,)] = connection.execute(
        f"select quantile_disc(t1 - t0, {quantile}) from drawn"
    ).fetchall()
    return 0 if longest_left_out is None else int(longest_left_out) + 1
