"""One sentence that names the bottleneck, with its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...units import format_bits_per_s, format_bytes, format_seconds
from .steps import steady

if TYPE_CHECKING:
    from ..trace import Trace


def verdict(trace: Trace) -> str:
    """What holds the steps up most, judged by the medians over ranks and steps.

    1. Communication that backward does not hide: is it waiting for a late rank, or the transfer itself?
    2. Else computation, or the time outside both (script, data loading).
    """
    table = steady(trace.step_breakdown())
    if not len(table):
        return "No whole step is in this trace: record at least three steps."
    middle = table.median(numeric_only=True)
    step_s = middle["step_s"]
    shares = {
        "exposed": middle["exposed_s"] / step_s,
        "compute": (middle["forward_s"] + middle["backward_s"] + middle["update_s"]) / step_s,
        "other": middle["other_s"] / step_s,
    }
    worst = max(shares, key=lambda name: shares[name])
    if worst == "exposed" or shares["exposed"] >= 0.25:
        return _communication(
            trace, middle["exposed_s"], middle["collective_s"], middle["bytes"], shares["exposed"]
        )
    if worst == "other":
        return (
            f"The script itself is the bottleneck: {format_seconds(middle['other_s'])} of a {format_seconds(step_s)} "
            f"step ({shares['other']:.0%}) is neither computation nor waiting for gradients (data loading? blocking "
            f"calls?)."
        )
    return (
        f"Computation is the bottleneck: {shares['compute']:.0%} of a {format_seconds(step_s)} step; only "
        f"{format_seconds(middle['exposed_s'])} ({shares['exposed']:.0%}) is spent waiting for gradients, so faster "
        f"communication gains at most that."
    )


def _communication(trace: Trace, exposed_s: float, collective_s: float, sent: float, share: float) -> str:
    requests = trace.kvstore()
    if len(requests):
        slowest = requests.iloc[0]
        return (
            f"Waiting for the parameter servers is the bottleneck: {format_seconds(exposed_s)} of each step ({share:.0%}) "
            f"after backward; a request for {slowest['parameter'] or slowest['tensor']} takes "
            f"{format_seconds(float(slowest['trip_s']))}, {format_seconds(float(slowest['queue_s']))} of it in the server."
        )
    late = trace.stragglers()
    waited = float(late["waited_per_step_s"].max()) if len(late) else 0.0
    if collective_s > 0 and waited > 0.5 * collective_s:
        culprit = int(late.sort_values("last_share")["rank"].iloc[-1])
        return (
            f"A late rank is the bottleneck: ranks wait {format_seconds(waited)} a step for others, and rank "
            f"{culprit} is the last to arrive in {late['last_share'].max():.0%} of the collectives."
        )
    busiest = trace.flows().head(1)
    flow = ""
    if len(busiest) and busiest["bits_per_s"].notna().all():
        flow = f"; the busiest TCP flow ran at {format_bits_per_s(float(busiest['bits_per_s'].iloc[0]))} of payload"
    if collective_s > 0:
        rate = format_bits_per_s(8 * sent / collective_s)
        reduced = f"{format_bytes(sent)} are reduced in {format_seconds(collective_s)} ({rate} of gradients)"
    else:  # Gloo: its collectives lie inside Horovod
        reduced = (
            f"{format_bytes(sum(info.bytes for info in trace.meta.tensors))} of gradients are reduced in it"
        )
    return (
        f"Communication is the bottleneck: {format_seconds(exposed_s)} of each step ({share:.0%}) waits for gradients "
        f"after backward; {reduced}{flow}."
    )
