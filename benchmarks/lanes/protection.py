"""What the protection costs: one vote of all ranks, and user memory that stays unwritten until it passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from vsketchdlc.validation.lab import LabSpec

from .bandwidth import CAP, NIC, per_call
from .builds import bare_build
from .jobs import MB, Block, Job, by_variant, lab, run
from .rows import Row, interval_of_median, middle


def protection(quick: bool, say: Callable[[str], None]) -> Iterator[Row]:
    """With, against a build that can leave out the vote and the copy from the result area, in one run."""
    size, calls = (16, 3) if quick else (64, 5)
    for name, spec, lanes, rounds, target in (
        ("capped, NIC 1, cap 0.25 Gbit/s", LabSpec(2, NIC, CAP), 4, 3 if quick else 6, 3.0),
        ("uncapped", LabSpec(2, math.inf), 1, 4 if quick else 20, 15.0),
    ):
        blocks = []
        for number in range(rounds):
            pair = [
                Block("with", lanes, size * MB, calls),
                Block("without", lanes, size * MB, calls, bare=True),
            ]
            blocks += pair if number % 2 == 0 else pair[::-1]
        with lab(spec, say) as place:
            job = Job("h0:1,h1:1", lanes, over="mpi", build=bare_build(), warm_up=4)
            groups = by_variant(run(place, job, blocks))
        case = f"protection, {size} MB, H=2, k={lanes}, {name}"
        protected, bare = per_call(groups["with"]), per_call(groups["without"])
        yield middle(case, "with vote and copy-out", [s * 1e3 for s in protected], "ms", "lower")
        yield middle(case, "without", [s * 1e3 for s in bare], "ms", "lower")
        cost = interval_of_median([100 * (a / b - 1) for a, b in zip(protected, bare, strict=True)])
        yield Row(case, "cost", cost[0], "%", "lower", target, len(bare), cost[1:])
