"""Every size with default settings: below the threshold nothing is lost, above it nothing either."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from vsketchdlc.validation.lab import LabSpec

from .jobs import Block, Job, by_variant, lab, run
from .rows import Row, interval_of_median, middle

FIRST, LAST = 4 << 10, 256 << 20
CALLS_FOR = 8 << 20


def sizes(quick: bool, say: Callable[[str], None]) -> Iterator[Row]:
    """MPI alone, no Horovod: its cycle of 1 ms would hide microseconds. Stock is `PMPI_Allreduce`, past the library."""
    blocks = []
    every = [FIRST * 4**power for power in range(9) if FIRST * 4**power <= LAST]
    for size in every:
        calls = max(1, min(64, CALLS_FOR // size))
        for number in range(6 if quick else max(12, min(60, LAST // size))):
            pair = [Block(f"stock {size}", None, size, calls), Block(f"default {size}", 1, size, calls)]
            blocks += pair if number % 2 == 0 else pair[::-1]
    own_calls = (
        200 if quick else 2000
    )  # noise of a network is tens of microseconds: what is added shows without one
    for number in range(6 if quick else 30):
        pair = [
            Block("alone, stock", None, FIRST, own_calls, alone=True),
            Block("alone, default", 1, FIRST, own_calls, alone=True),
        ]
        blocks += pair if number % 2 == 0 else pair[::-1]
    with lab(LabSpec(hosts=2, nic_bits_per_s=math.inf), say) as place:
        groups = by_variant(run(place, Job("h0:1,h1:1", 1, over="mpi", warm_up=4), blocks))
    threshold = groups[f"default {FIRST}"][0].threshold_bytes
    for size in every:
        stock, ours = (
            [t.total_s / t.block.calls for t in groups[f"{name} {size}"]] for name in ("stock", "default")
        )
        value, low, high = interval_of_median([b / a for a, b in zip(stock, ours, strict=True)])
        case = f"sizes, uncapped, H=2, {size >> 10} KiB"
        yield middle(case, "stock", [s * 1e6 for s in stock], "us", "lower")
        if size < threshold:
            yield Row(case, "default / stock (both MPI)", value, "x", "lower", None, len(ours), (low, high))
        else:
            yield Row(case, "default / stock", value, "x", "lower", None, len(ours), (low, high))
            yield Row(case, "upper end of its 95 % interval", high, "x", "lower", 1.05, len(ours))
    yield Row("sizes, uncapped, H=2", "measured threshold", threshold / 1024, "KiB", "lower")
    extra = interval_of_median(
        [
            1e6 * (ours.total_s - stock.total_s) / own_calls
            for stock, ours in zip(groups["alone, stock"], groups["alone, default"], strict=True)
        ]
    )
    case = "sizes, below the threshold"
    yield Row(
        case,
        "extra a call (MPI_COMM_SELF)",
        extra[0],
        "us",
        "lower",
        2.0,
        len(groups["alone, stock"]),
        extra[1:],
    )
