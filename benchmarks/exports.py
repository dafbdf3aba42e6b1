"""How long a trace of a million events takes to export, and how large the file is.

    benchmarks/exports.py [--quick] [--json FILE]

The trace is a generated training: two ranks, 161 tensors a step, eight events a tensor. All formats take turns
in each round; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from vsketchdlc.tracer.exports.archive import export_archive
from vsketchdlc.tracer.exports.chakra import export_chakra
from vsketchdlc.tracer.exports.chrome import export_chrome
from vsketchdlc.tracer.exports.perfetto import export_perfetto
from vsketchdlc.tracer.trace import HostInfo, Trace, TraceMeta, write_trace

TENSORS = 161
RANKS = 2
TARGETS_S = {"chrome, no limit": 10.0, "perfetto": 10.0}
"""Seconds for a million events."""
KINDS = ("push", "ready", "enqueue", "negotiate", "fuse_in", "allreduce", "fuse_out", "done")


def million_events(folder: Path, events: int) -> Trace:
    """A trace of about `events` rows whose intervals nest and wait as in a real training."""
    steps = max(1, events // (RANKS * TENSORS * len(KINDS)))
    step, rank, tensor, kind = (
        part.ravel()
        for part in np.meshgrid(
            np.arange(steps), np.arange(RANKS), np.arange(TENSORS), np.arange(len(KINDS)), indexing="ij"
        )
    )
    begin = step * 200_000_000 + 60_000_000
    bucket = tensor // 16
    in_bucket = np.isin(kind, (4, 5, 6))
    start = begin + np.select(
        [kind == 0, kind == 1, kind == 2, kind == 3, kind == 7],
        [
            tensor * 9_000,
            tensor * 9_000 + 8_000,
            tensor * 600_000,
            tensor * 600_000 + 4_000,
            bucket * 10_000_000 + 9_000_000,
        ],
        tensor * 620_000 + kind * 90_000,
    )
    end = np.select(
        [kind == 0, kind == 1, kind == 2, kind == 3, kind == 7],
        [
            start + 7_000,
            begin + tensor * 600_000,
            start + 3_000,
            begin + bucket * 10_000_000 + 8_000_000,
            start + (tensor % 16) * 2_000,
        ],
        start + 80_000,
    )
    names = pa.array([f"horovod_allreduce.{i}" for i in range(TENSORS)]).take(pa.array(tensor))
    tracks = pa.array(["python", "engine", "engine", "horovod", "horovod", "horovod", "horovod", "horovod"])
    table = pa.table(
        {
            "step": step,
            "rank": rank,
            "host": pa.array([f"h{i}" for i in range(RANKS)]).take(pa.array(rank)),
            "process": rank + 4000,
            "track": tracks.take(pa.array(kind)),
            "kind": pa.array(KINDS).take(pa.array(kind)),
            "tensor": pa.compute.if_else(pa.array(in_bucket), pa.scalar(None, pa.string()), names),
            "bucket": pa.array(np.where(in_bucket, tensor, bucket)),
            "bytes": pa.array((tensor + 1) * 4096),
            "t_start_ns": start,
            "t_end_ns": np.maximum(start, end),
        }
    )
    hosts = [HostInfo(f"h{i}", ranks=[i]) for i in range(RANKS)]
    return write_trace(folder / "trace", TraceMeta(ranks=RANKS, hosts=hosts), table)


def main() -> None:
    """Run all cases and print a table; `--json` writes the rows of DESIGN's benchmark form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, one round")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    events, rounds = (100_000, 1) if options.quick else (1_000_000, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = million_events(folder, events)
        rows = measured(trace, folder, rounds, variants(folder))
    for row in rows:
        target = "" if row["target"] is None else f"  (target {row['target']:g})"
        print(f"{row['case']:<28}{row['variant']:<22}{row['value']:>10.3g} {row['unit']}{target}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def variants(folder: Path) -> dict[str, Callable[[Trace], list[Path]]]:
    """What is measured: a name, and what exports a trace and returns the files it wrote."""
    everything = {"limit_bytes": 1e12}
    return {
        "chrome, no limit": lambda trace: [export_chrome(trace, folder / "all.json", **everything).path],
        "chrome, 50 MB": lambda trace: [export_chrome(trace, folder / "cut.json").path],
        "chrome, no limit, gz": lambda trace: [
            export_chrome(trace, folder / "all.json.gz", **everything).path
        ],
        "perfetto": lambda trace: [export_perfetto(trace, folder / "all.pftrace", **everything).path],
        "perfetto archive": lambda trace: [export_archive(trace, folder / "all.zip", **everything).path],
        "chakra": lambda trace: [file.path for file in export_chakra(trace, folder / "all")],
    }


def measured(
    trace: Trace, folder: Path, rounds: int, cases: dict[str, Callable[[Trace], list[Path]]]
) -> list[dict[str, Any]]:
    """Rows of seconds and megabytes, all `cases` once in each round."""
    events = int(trace.query("select count(*) as n from events")["n"][0])
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    sizes: dict[str, float] = {}
    for _ in range(rounds):
        for name, case in cases.items():
            begin = time.perf_counter()
            files = case(trace)
            seconds[name].append(time.perf_counter() - begin)
            sizes[name] = sum(file.stat().st_size for file in files) / 1e6
    rows = []
    label = f"export of {events:,} events"
    for name, values in seconds.items():
        spread = max(values) - min(values)
        shared = {"case": label, "variant": name, "better": "lower", "runs": len(values)}
        limit_s = TARGETS_S.get(name)
        target = None if limit_s is None else limit_s * events / 1e6
        rows.append(
            {**shared, "value": statistics.median(values), "unit": "s", "target": target, "spread": spread}
        )
        rows.append({**shared, "value": sizes[name], "unit": "MB", "target": None, "spread": 0.0})
    return rows


if __name__ == "__main__":
    main()
