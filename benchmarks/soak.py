"""Thousands of random allreduces over the lanes, each compared with MPI's own result; and what is left afterwards.

    benchmarks/soak.py [--quick] [--calls N] [--layout 2,1,1] [--mpi openmpi|mpich] [--seed N] [--kill N] [--json FILE]
    benchmarks/soak.py --huge        # more than 2^31 bytes in place, checked by formula; about 11 GB of memory, a minute

Sizes, types, operations, in place or not, lanes per host, and the communicator are drawn at random: the world, copies
of it, halves of the hosts, one rank a host, the world turned round, all but one rank. Calls come one after the other
and from several threads at once, each with a communicator of its own, in another order on every rank.
A layout is the number of ranks of each host; ranks of this machine play the hosts. Exit status 1: something was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from soak_cases.rank import OwnMpi, Row, Soak, huge

HERE = Path(__file__).resolve()
LAYOUTS = ("1,1", "2,2", "3,1", "1,1,1", "2,1,1", "1,2,1,1", "3")
AUX = 3
GROUPS_MAX = 8  # of a process: rank/groups.h
THRESHOLD_BYTES = 256
RSS_GROWTH_MB = 24.0


def rank_main(arguments: argparse.Namespace) -> None:
    """What mpirun starts: one line of JSON from rank 0."""
    hosts = [int(word) for word in arguments.layout.split(",")]
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    names = [f"host{host}" for host, ranks in enumerate(hosts) for _ in range(ranks)]
    os.environ["FASTHVD_HOST_ID"] = names[rank]  # before MPI is initialised
    from mpi4py import MPI

    found = huge(MPI.COMM_WORLD, OwnMpi(MPI)) if arguments.huge else None
    found = found or Soak(arguments.calls, arguments.seed, hosts, arguments.kill).run()
    everybody = MPI.COMM_WORLD.gather(found)
    if everybody is not None:
        print(json.dumps(everybody), flush=True)


def launch(arguments: argparse.Namespace, layout: str, calls: int) -> list[Row]:
    """One job; what each rank found."""
    ranks = sum(int(word) for word in layout.split(","))
    words = [sys.executable, str(HERE), "--rank", "--layout", layout, "--calls", str(calls)]
    words += [
        "--seed",
        str(arguments.seed),
        "--kill",
        str(arguments.kill),
        *(["--huge"] if arguments.huge else []),
    ]
    flags = ["--aux", str(AUX), "--threshold", str(THRESHOLD_BYTES), "--quiet"]
    command = [sys.executable, "-m", "vsketchdlc", "run", *flags, "--", *launcher(arguments.mpi), str(ranks)]
    calm = {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [*command, *words], env={**os.environ, **calm}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0 or not done.stdout.strip():
        return [{"calls": 0, "wrong": [f"the job ended with status {done.returncode}"]}]
    found: list[Row] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def launcher(mpi: str) -> list[str]:
    """The words up to the number of ranks."""
    if mpi == "mpich":
        home = Path(sys.executable).parents[1] / "mpich"
        mpiexec = home / "bin" / "mpiexec" if home.exists() else Path(shutil.which("mpiexec") or "mpiexec")
        library = ["-genv", "LD_LIBRARY_PATH", str(mpiexec.parents[1] / "lib")]
        return [str(mpiexec), *library, "-genv", "MPI4PY_MPIABI", "mpich", "-n"]
    tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    return ["mpirun", "--bind-to", "none", "--oversubscribe", *tcp, "-np"]


def left_behind(found: Sequence[Row]) -> int:
    """Lanes that still run after their job."""
    pids = {pid for rank in found for pid in rank.get("lane_pids", [])}
    for _ in range(40):
        left = [pid for pid in pids if _is_lane(pid)]
        if not left:
            return 0
        time.sleep(0.05)
    return len(left)


def _is_lane(pid: int) -> bool:
    """Whether it runs: a zombie only waits for its parent."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(") ")
    except OSError:
        return False
    return name.endswith("(fasthvd-lane") and not rest.startswith("Z")


def rows_of(layout: str, found: Sequence[Row], left: int) -> list[Row]:
    """The rows of one job."""
    case = f"hosts with {layout} ranks"

    def row(variant: str, value: float, unit: str, target: float | None) -> Row:
        better = "higher" if variant == "allreduces" else "lower"
        return {
            "case": case,
            "variant": variant,
            "value": value,
            "unit": unit,
            "better": better,
            "target": target,
            "runs": 1,
            "spread": 0.0,
        }

    rows = [
        row("allreduces", sum(rank["calls"] for rank in found), "calls of a rank", None),
        row("differ from MPI", sum(len(rank["wrong"]) for rank in found), "calls of a rank", 0),
        row("processes left", left, "lanes", 0),
    ]
    if "rss_mb" in found[0]:
        rows += [
            row("more descriptors", max(rank["fds"] for rank in found), "of a rank", 0),
            row(
                "more memory", round(max(rank["rss_mb"] for rank in found), 1), "MB of a rank", RSS_GROWTH_MB
            ),
            row(
                "more memory of lanes",
                round(max(rank["lanes_rss_mb"] for rank in found), 1),
                "MB, all of a rank's",
                RSS_GROWTH_MB,
            ),
            row("lanes while it ran", max(rank["lanes"] for rank in found), "of a rank", AUX * GROUPS_MAX),
            row("lanes after Comm_free", max(rank["lanes_at_end"] for rank in found), "of a rank", None),
        ]
    if "seconds" in found[0]:
        rows.append(row("time", round(max(rank["seconds"] for rank in found), 2), "s", None))
    return rows


def main() -> int:
    """Run it, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="300 calls in each of two layouts")
    parser.add_argument("--calls", type=int, help="allreduces of each rank, all layouts together (10000)")
    parser.add_argument("--layout", help="only this one, such as 2,1,1")
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="openmpi")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kill", type=int, default=0, metavar="N", help="every rank kills up to N lanes meanwhile"
    )
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--json", help="write the rows here ('-': standard output)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank_main(arguments)
        return 0
    layouts = [arguments.layout] if arguments.layout else ["1,1", "2,1,1"] if arguments.quick else LAYOUTS
    if arguments.huge:
        layouts = [arguments.layout or "1,1"]
    calls = (arguments.calls or (600 if arguments.quick else 10_000)) // len(layouts)
    rows: list[Row] = []
    for layout in layouts:
        found = launch(arguments, layout, calls)
        for line in {line for rank in found for line in rank["wrong"]}:
            print(f"hosts with {layout} ranks: {line}", file=sys.stderr)
        rows += rows_of(layout, found, left_behind(found))
        if arguments.json and arguments.json != "-":
            Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.json == "-":
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            target = "" if row["target"] is None else f"  (at most {row['target']:g})"
            print(f"{row['case']:28} {row['variant']:24} {row['value']:>10} {row['unit']}{target}")
    return int(any(row["target"] is not None and row["value"] > row["target"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
