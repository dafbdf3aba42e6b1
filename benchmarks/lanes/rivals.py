"""Other ways to the same end, at the capped case: nobody can say that one setting would have done it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from vsketchdlc.validation.lab import LabSpec

from .bandwidth import CAP, NIC, flat, gloo_job
from .builds import threads_build
from .jobs import MB, Block, Job, Timed, bus_bits_per_s, lab, run
from .rows import Row

RING = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}


def rivals(quick: bool, say: Callable[[str], None]) -> Iterator[Row]:
    """Each needs a launch of its own: they take turns, twice."""
    size, calls = (8, 2) if quick else (32, 5)
    case = f"rivals, capped {size} MB, H=2, NIC 1, cap 0.25 Gbit/s"
    ranks = "h0:1,h1:1"
    launches = {
        "stock (Rabenseifner)": (Job(ranks, 0), 0),
        "stock, ring": (Job(ranks, 0, mca=RING), 0),
        "stock, btl_tcp_links 4": (Job(ranks, 0, mca={"btl_tcp_links": "4"}), 0),
        "stock, ring, btl_tcp_links 4": (Job(ranks, 0, mca={**RING, "btl_tcp_links": "4"}), 0),
        "Gloo": (gloo_job(ranks), 0),
        "k=4, lanes as threads": (Job(ranks, 4, build=threads_build()), 4),
        "k=4": (Job(ranks, 4), 4),
    }
    found: dict[str, list[Timed]] = {name: [] for name in launches}
    with lab(LabSpec(hosts=2, nic_bits_per_s=NIC, flow_cap_bits_per_s=CAP), say) as place:
        for _ in range(1 if quick else 2):
            for name, (job, lanes) in launches.items():
                found[name] += run(place, job, [Block(name, lanes, size * MB, calls)])
    for name, timed in found.items():
        rates = sorted(bus_bits_per_s(size * MB, 2, seconds) / 1e6 for seconds in flat(timed))
        spread = (rates[len(rates) // 4], rates[-1 - len(rates) // 4])
        yield Row(case, name, median(rates), "Mbit/s", "higher", None, len(rates), spread)
    for name in ("k=4", "k=4, lanes as threads"):
        cpu_ms = median([one.cpu_s for one in found[name]]) * 1e3
        yield Row(case, f"{name}: CPU a host and call", cpu_ms, "ms", "lower", None, len(found[name]))
