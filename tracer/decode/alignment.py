"""The clocks of a recording's hosts, from its messages and collectives."""

from __future__ import annotations

from ..trace import TraceMeta
from .clocks import NO_BOUNDS, Bounds, Clock, align, bounds_of_collectives, bounds_of_messages
from .processes import Decoded
from .tcp import Messages, Pair, messages


def align_hosts(decoded: list[Decoded], matched: list[Pair], meta: TraceMeta) -> dict[str, Clock | None]:
    """Clocks of all hosts against the first one's; they and what cannot be aligned are told in `meta`."""
    by_hosts: dict[tuple[str, str], list[Pair]] = {}
    for pair in matched:
        hosts = decoded[pair.one[0]].host, decoded[pair.other[0]].host
        if hosts[0] != hosts[1]:
            by_hosts.setdefault(hosts, []).append(pair)
            by_hosts.setdefault((hosts[1], hosts[0]), []).append(Pair(pair.other, pair.one))

    def bounds(reference: str, other: str) -> Bounds:
        known = NO_BOUNDS
        for pair in by_hosts.get((reference, other), []):
            to_host = _messages(decoded, pair)
            known = known.joined(bounds_of_messages(to_host, _messages(decoded, Pair(pair.other, pair.one))))
        return known.joined(
            bounds_of_collectives(
                [one.calls for one in decoded if one.host == reference],
                [one.calls for one in decoded if one.host == other],
            )
        )

    clocks = align([host.name for host in meta.hosts], bounds)
    for host in meta.hosts:
        clock = clocks[host.name]
        host.clock_offset_ns = None if clock is None else clock.offset_ns
        host.clock_drift = 0.0 if clock is None else clock.drift
        host.clock_middle_ns = 0 if clock is None else clock.middle_ns
        host.clock_uncertainty_ns = None if clock is None else clock.uncertainty_ns
        if clock is None:
            meta.notes.append(
                f"the clock of host {host.name} cannot be aligned with {meta.hosts[0].name}: the trace has no "
                f"message or collective in both directions, or they contradict each other; times of the two are "
                f"not comparable"
            )
    return clocks


def _messages(decoded: list[Decoded], pair: Pair) -> Messages:
    """Messages from the first end of `pair` to the other."""
    sender, receiver = decoded[pair.one[0]].traffic, decoded[pair.other[0]].traffic
    if sender.connections[pair.one[1]].middle or receiver.connections[pair.other[1]].middle:
        return Messages(sender.start_ns[:0], receiver.end_ns[:0])
    sends, receives = sender.of(pair.one[1], send=True), receiver.of(pair.other[1], send=False)
    return messages(sender, sends, receiver, receives)
