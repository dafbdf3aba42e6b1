"""How fast the lanes are, in the lab (emulated hosts): every row of Fast Horovod's table.

    benchmarks/fasthvd.py [--quick] [--case NAME] [--json FILE]

All variants of a case take turns within one run, by `fasthvd_use_lanes`; those that need another launch alternate
with it. A bandwidth is payload by the slowest rank; a spread is the quartiles of single calls, for ratios and costs
the 95 % interval of the paired median. Every gain comes as two factors: against stock, and against one lane.
Everything runs with --bind-to none. What the lab cannot show is printed with each case.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lanes.bandwidth import capped, slow_cores, two_ranks, uncapped, uneven
from lanes.protection import protection
from lanes.rivals import rivals
from lanes.rows import HEAD, Row
from lanes.sizes import sizes
from lanes.training import training

CASES: dict[str, Callable[[bool, Callable[[str], None]], Iterator[Row]]] = {
    "uncapped": uncapped,
    "sizes": sizes,
    "protection": protection,
    "slow-cores": slow_cores,
    "capped": capped,
    "rivals": rivals,
    "two-ranks": two_ranks,
    "uneven": uneven,
    "training": training,
}


def main() -> None:
    """Run the cases, print a table, write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: does it work?")
    parser.add_argument(
        "--case", action="append", choices=list(CASES), help="one case alone; may be repeated"
    )
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    start = time.monotonic()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.2f} at the start\n{HEAD}")
    for name in options.case or CASES:
        begin = time.monotonic()
        for row in CASES[name](options.quick, lambda text: print(f"-- {text}", flush=True)):
            rows.append(row)
            print(row.line(), flush=True)
            if options.json:
                Path(options.json).write_text(json.dumps([one.to_json() for one in rows], indent=1))
        print(f"-- {name}: {time.monotonic() - begin:.0f} s", flush=True)
    missed = [row for row in rows if row.good is False]
    print(f"{len(rows)} rows, {len(missed)} targets missed, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
