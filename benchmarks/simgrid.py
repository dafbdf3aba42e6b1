"""The model's ring allreduce against SimGrid's SMPI: same hosts, bandwidth and latency, in one run.

    benchmarks/simgrid.py [--quick] [--json FILE]

16 MiB over 64 equal hosts (8 with --quick) on one switch. SMPI simulates every message of the logical ring; the model takes
the ring as one fluid activity plus latency. Needs smpicc and smpirun (Debian: apt-get install libsimgrid-dev);
without them it says so and compares nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from vsketchdlc.model import openmpi
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.collectives import alone_s, legs_of_stages
from vsketchdlc.model.parameters import Parameters
from vsketchdlc.model.sites import Sites

BYTES = 16 << 20
RATE_BYTES_PER_S = 1.25e9
LATENCY_S = 25e-6
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int n = %d, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *data = calloc(n, sizeof *data), *sum = calloc(n, sizeof *sum);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    MPI_Allreduce(data, sum, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = MPI_Wtime() - start, all;
    MPI_Reduce(&took, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("took %%.9f\\n", all);
    MPI_Finalize();
    return 0;
}
"""
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="h" suffix="" radical="0-{last}" speed="1Gf" bw="{rate}Bps" lat="{latency}s"/>
</platform>
"""


def smpi_seconds(hosts: int) -> tuple[float, float]:
    """Simulated seconds of the allreduce, and seconds the simulation took."""
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-simgrid-") as name:
        folder = Path(name)
        (folder / "ring.c").write_text(PROGRAM % (BYTES // 4))
        platform = PLATFORM.format(last=hosts - 1, rate=RATE_BYTES_PER_S, latency=LATENCY_S / 2)
        (folder / "platform.xml").write_text(platform)
        (folder / "hosts").write_text("".join(f"h{number}\n" for number in range(hosts)))
        subprocess.run(["smpicc", "-O2", "ring.c", "-o", "ring"], cwd=folder, check=True, capture_output=True)
        settings = (
            "smpi/allreduce:lr",
            "smpi/simulate-computation:no",
            "network/model:CM02",
            "network/crosstraffic:0",
            "network/TCP-gamma:1e12",
        )
        command = ["smpirun", "-np", str(hosts), "-platform", "platform.xml", "-hostfile", "hosts"]
        start = time.perf_counter()
        done = subprocess.run(
            [*command, *(f"--cfg={one}" for one in settings), "./ring"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return float(done.stdout.split("took")[1].split()[0]), time.perf_counter() - start


def model_seconds(hosts: int) -> tuple[float, float]:
    """The same of this model: a ring without CPU costs."""
    start = time.perf_counter()
    free = Parameters(message_s=0.0, stock_s_per_byte=1e-15, stock_reduce_s_per_byte=1e-15, stock_duplex=1.0)
    cluster = Cluster.star(hosts, nic_bits_per_s=RATE_BYTES_PER_S * 8, latency_s=LATENCY_S, window_bytes=1e12)
    sites = Sites.of(cluster, 1.0)
    stages = openmpi.stages(openmpi.Algorithm.RING, hosts, BYTES)
    seconds = alone_s(legs_of_stages(stages, sites, free), sites, free)
    return seconds, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8 hosts, one round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if shutil.which("smpirun") is None or shutil.which("smpicc") is None:
        print("SimGrid is not here (Debian: apt-get install libsimgrid-dev); nothing compared")
        if options.json:
            options.json.write_text("[]")
        return
    hosts, rounds = (8, 1) if options.quick else (64, 3)
    smpi = [smpi_seconds(hosts) for _ in range(rounds)]
    model = [model_seconds(hosts) for _ in range(rounds)]
    theirs, ours = smpi[0][0], model[0][0]
    speed = sorted(s[1] for s in smpi)[rounds // 2] / sorted(m[1] for m in model)[rounds // 2]
    case = f"ring allreduce, 16 MiB, {hosts} hosts"
    print(
        f"{case}: SMPI {theirs * 1e3:.3f} ms, model {ours * 1e3:.3f} ms, {ours / theirs - 1:+.2%}; {speed:.0f} x as fast"
    )
    rows: list[dict[str, Any]] = [
        {
            "case": case,
            "variant": "model against SMPI",
            "value": abs(ours / theirs - 1),
            "unit": "1",
            "better": "lower",
            "target": 0.03,
        },
        {
            "case": case,
            "variant": "times as fast as SMPI",
            "value": speed,
            "unit": "1",
            "better": "higher",
            "target": 50,
        },
    ]
    if options.json:
        options.json.write_text(
            json.dumps([{**row, "runs": rounds, "spread": 0.0} for row in rows], indent=1)
        )


if __name__ == "__main__":
    main()
