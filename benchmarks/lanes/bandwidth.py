"""Bandwidth and speed-up of large allreduces: capped, uncapped, on slow cores, with two ranks a host, with a slow flow."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from vsketchdlc.validation.lab import Lab, LabSpec

from .jobs import MB, Block, Job, Timed, bus_bits_per_s, by_variant, lab, run
from .rows import Row, middle, ratio

Say = Callable[[str], None]
NIC, CAP = 1e9, 250e6
#: Of what Ethernet carries, 1448 of 1514 + 24 bytes are TCP payload.
REACHED = 0.90


def flat(groups: Sequence[Timed]) -> list[float]:
    """Seconds of every single call."""
    return [seconds for one in groups for seconds in one.call_s]


def per_call(groups: Sequence[Timed]) -> list[float]:
    """Seconds a call of every block: slowest rank's time for the block over its calls."""
    return [one.total_s / one.block.calls for one in groups]


def gains(case: str, groups: dict[str, list[Timed]], target: dict[str, float]) -> Iterator[Row]:
    """Both factors of every variant: against stock and against one lane, paired by round."""
    for variant, blocks in groups.items():
        if variant != "stock":
            yield ratio(
                case,
                f"{variant} against stock",
                per_call(groups["stock"])[: len(blocks)],
                per_call(blocks),
                "higher",
                target.get(variant),
            )
    for variant, blocks in groups.items():
        if variant not in ("stock", "k=1") and variant.startswith("k="):
            yield ratio(case, f"{variant} against k=1", per_call(groups["k=1"]), per_call(blocks), "higher")


def rounds(variants: Sequence[tuple[str, int]], size: int, calls: int, count: int) -> list[Block]:
    """`count` rounds over all variants, forth and back in turns, so that a drift hits all alike."""
    blocks = []
    for number in range(count):
        order = variants if number % 2 == 0 else variants[::-1]
        blocks += [Block(name, lanes, size, calls) for name, lanes in order]
    return blocks


def capped(quick: bool, say: Say) -> Iterator[Row]:
    """Payload bus bandwidth against min(NIC, k x cap), at least ten back-to-back calls by the slowest rank."""
    for hosts in (2,) if quick else (2, 3, 4):
        spec = LabSpec(hosts=hosts, nic_bits_per_s=NIC, flow_cap_bits_per_s=CAP)
        ranks = ",".join(f"h{number}:1" for number in range(hosts))
        with lab(spec, say) as place:
            for size in (8,) if quick else (32, 64):
                calls = 3 if quick else 10
                blocks = [Block(f"k={k}", k, size * MB, calls) for k in (4, 2, 1)]
                blocks.append(Block("stock", 0, size * MB, 1 if quick else 3))
                groups = by_variant(run(place, Job(ranks, 4), blocks))
                case = f"capped {size} MB, H={hosts}, NIC 1, cap 0.25 Gbit/s"
                yield from _bandwidths(case, groups, size * MB, hosts)
                for k in (1, 2, 4):
                    stock = median(flat(groups["stock"]))
                    one, this = per_call(groups["k=1"])[0], per_call(groups[f"k={k}"])[0]
                    yield Row(case, f"k={k} against stock", stock / this, "x", "higher", None, calls)
                    if k > 1:
                        yield Row(case, f"k={k} against k=1", one / this, "x", "higher", None, calls)
            # bbr leaves a flow almost idle for 0.2 s every 10 s to look at its round trip: a call of that time is slower
            congestion_control(place, "reno")
            for size in () if quick else (32, 64):
                groups = by_variant(run(place, Job(ranks, 4), [Block("k=4", 4, size * MB, 10)]))
                case = f"capped {size} MB, H={hosts}, NIC 1, cap 0.25 Gbit/s, reno"
                yield from _bandwidths(case, groups, size * MB, hosts)


def congestion_control(place: Lab, name: str) -> None:
    """All hosts' new connections use `name` from now on."""
    for host in place.hosts:
        place.run(host, ["sh", "-c", f"echo {name} > /proc/sys/net/ipv4/tcp_congestion_control"], check=True)


def _bandwidths(case: str, groups: dict[str, list[Timed]], size: int, hosts: int) -> Iterator[Row]:
    for variant in [name for name in ("stock", "k=1", "k=2", "k=4") if name in groups]:
        block = groups[variant][0]
        limit = min(NIC, int(variant[2:]) * CAP) if variant != "stock" else None
        single = sorted(bus_bits_per_s(size, hosts, seconds) / 1e6 for seconds in block.call_s)
        yield Row(
            case,
            variant,
            bus_bits_per_s(size, hosts, block.total_s / block.block.calls) / 1e6,
            "Mbit/s",
            "higher",
            None if limit is None else REACHED * limit / 1e6,
            block.block.calls,
            (single[len(single) // 4], single[-1 - len(single) // 4]),
        )


def uncapped(quick: bool, say: Say) -> Iterator[Row]:
    """No NIC rate, no cap: two hosts share the real cores, so CPU work is the limit. Stock over MPI and over Gloo.

    Once with this machine's congestion control and once with reno: bbr paces by a timer for every packet, which costs
    lanes and stock alike; most clusters have cubic, which does not pace (a namespace may not choose it, but reno).
    """
    with lab(LabSpec(hosts=2, nic_bits_per_s=math.inf), say) as place:
        own = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        for control in dict.fromkeys((own, "reno")):
            congestion_control(place, control)
            yield from _uncapped(place, f"uncapped 64 MB, H=2, {control}", quick)


def _uncapped(place: Lab, case: str, quick: bool) -> Iterator[Row]:
    size, calls, count = 64 * MB, 5, 2 if quick else 10
    variants = [("stock", 0), ("k=1", 1), ("k=2", 2), ("k=4", 4)]
    gloo: list[Timed] = []
    lanes: list[Timed] = []
    for _ in range(1 if quick else 2):  # another launch: the two alternate
        lanes += run(place, Job("h0:1,h1:1", 4, warm_up=4), rounds(variants, size, calls, count))
        gloo += run(place, gloo_job("h0:1,h1:1"), [Block("Gloo", 0, size, calls)] * count)
    groups = by_variant([*lanes, *gloo])
    for variant, blocks in groups.items():
        yield middle(case, variant, [s * 1e3 for s in flat(blocks)], "ms", "lower")
    for variant, blocks in groups.items():
        yield middle(case, f"{variant}: CPU a host", [one.cpu_s * 1e3 for one in blocks], "ms", "lower")
    yield from gains(case, {name: blocks for name, blocks in groups.items() if name != "Gloo"}, {"k=1": 1.3})
    yield ratio(case, "k=1 against Gloo", per_call(groups["Gloo"]), per_call(groups["k=1"]), "higher", 1.3)
    best = min(
        (name for name in groups if name.startswith("k=")), key=lambda name: median(flat(groups[name]))
    )
    used = median([one.cpu_s for one in groups[best]]) * 2
    busy = used / (median(per_call(groups[best])) * (os.cpu_count() or 1))
    yield Row(case, f"fastest k ({100 * busy:.0f} % of the cores busy)", int(best[2:]), "lanes", "higher")


def gloo_job(ranks: str) -> Job:
    """Stock Horovod with its data over Gloo."""
    return Job(ranks, 0, warm_up=2, gloo=True)


def slow_cores(quick: bool, say: Say) -> Iterator[Row]:
    """Hosts of four cores at 0.2 of a real one (throttle emulation): one slow core cannot drive the network."""
    size, calls, count = (16, 2, 2) if quick else (64, 3, 5)
    case = f"4 cores at 0.2 (throttled), {size} MB, H=2"
    variants = [("stock", 0), *((f"k={k}", k) for k in (1, 2, 3, 4, 6))]
    spec = LabSpec(hosts=2, nic_bits_per_s=math.inf, cores=4, speed=0.2)
    with lab(spec, say) as place:
        groups = by_variant(
            run(place, Job("h0:1,h1:1", 6, warm_up=4), rounds(variants, size * MB, calls, count))
        )
    for variant, blocks in groups.items():
        yield middle(case, variant, [s * 1e3 for s in flat(blocks)], "ms", "lower")
    best = min((name for name in groups if name != "stock"), key=lambda name: median(per_call(groups[name])))
    yield from gains(case, groups, {best: 1.6})
    yield Row(case, "more lanes stop helping at", int(best[2:]), "lanes", "higher")


def two_ranks(quick: bool, say: Say) -> Iterator[Row]:
    """Two ranks on each of two hosts: lanes sum within the host first."""
    size, calls = (8, 2) if quick else (32, 5)
    case = f"2 hosts x 2 ranks, {size} MB, NIC 1, cap 0.25 Gbit/s"
    with lab(LabSpec(hosts=2, nic_bits_per_s=NIC, flow_cap_bits_per_s=CAP), say) as place:
        blocks = rounds([("k=1", 1), ("k=4", 4)], size * MB, calls, 2) + [Block("stock", 0, size * MB, 2)] * 2
        groups = by_variant(run(place, Job("h0:2,h1:2", 4), blocks))
        wire = _bytes_on_wire(place, size * MB, calls)
    groups = {"stock": groups["stock"], **{k: groups[k] for k in ("k=1", "k=4")}}
    for variant, timed in groups.items():
        yield middle(case, variant, [s * 1e3 for s in flat(timed)], "ms", "lower")
    yield from gains(case, groups, {"k=4": 3.0})
    # Ethernet, IP and TCP headers, acknowledgements, Horovod's own control messages.
    yield Row(case, "bytes sent by a host / (2(H-1)/H x vector)", wire, "x", "lower", 1.08, calls)


def _bytes_on_wire(place: Lab, size: int, calls: int) -> float:
    """Bytes that the busiest host sent for `calls` allreduces over the lanes, in units of what is due."""
    sent: list[float] = []

    def begin() -> None:
        before.update(place.bytes_on_wire())

    before: dict[str, object] = {}
    block = Block("k=4", 4, size, calls, pause=True)
    run(place, Job("h0:2,h1:2", 4), [block], begin)
    for name, count in place.bytes_on_wire().items():
        sent.append(count.sent_bytes - before[name].sent_bytes)  # type: ignore[attr-defined]
    return max(sent) / (calls * size)  # H = 2: 2 (H-1)/H = 1


def uneven(quick: bool, say: Say) -> Iterator[Row]:
    """Four lanes, one of them held to half the others' rate: slices follow the rates."""
    size, settle, calls = (16, 24, 6) if quick else (32, 36, 12)
    case = f"uneven flows, {size} MB, H=2, one of four at half"
    slow = CAP / 2
    with lab(LabSpec(hosts=2, nic_bits_per_s=NIC, flow_cap_bits_per_s=CAP), say) as place:

        def slow_one() -> None:
            time.sleep(0.2)
            flows = sorted(place.flows().items(), key=lambda item: item[1].sent_bytes)
            place.slow_flow(flows[-1][0], slow)

        blocks = [
            Block("before", 4, size * MB, calls),
            Block("settling", 4, size * MB, settle, pause=True),
            Block("settled", 4, size * MB, calls),
        ]
        timed = run(place, Job("h0:1,h1:1", 4), blocks, slow_one)
    summed = min(NIC, 3 * CAP + slow)
    for block in timed:
        limit = {"before": min(NIC, 4 * CAP), "settled": summed}.get(block.block.variant)
        rates = [bus_bits_per_s(size * MB, 2, seconds) / 1e6 for seconds in block.call_s]
        yield middle(
            case,
            block.block.variant,
            rates,
            "Mbit/s",
            "higher",
            REACHED * limit / 1e6 if block.block.variant == "settled" and limit else None,
        )
    yield Row(case, "equal slices would give", 4 * slow / 1e6, "Mbit/s", "higher")
