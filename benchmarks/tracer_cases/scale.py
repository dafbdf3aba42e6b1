"""How fast raw logs become a trace, and a large trace a report; both generated."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from vsketchdlc.tracer import raw

from .rows import Row, row


def convert_rows(quick: bool) -> Iterator[Row]:
    """Raw logs of a generated training become a trace."""
    from vsketchdlc.tracer.decode.convert import convert

    steps = 100 if quick else 620
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = sum(generated_process(folder / "logs", rank, steps, 161) for rank in range(2))
        rates = []
        for _ in range(3):
            start = time.perf_counter()
            convert(raw.read_recording(folder / "logs"), folder / "trace", [])
            rates.append(events / (time.perf_counter() - start))
    yield row(
        "convert",
        f"{events:,} records",
        statistics.median(rates),
        "events/s",
        "higher",
        1e6,
        3,
        [min(rates), max(rates)],
    )


def generated_process(folder: Path, rank: int, steps: int, tensors: int) -> int:
    """Write one process's folder: every tensor pushed, ready, done in every step, five buckets, idle control calls."""
    place = folder / f"h.{100 + rank}.{rank}"
    place.mkdir(parents=True)
    (place / "identity").write_text(f"host=h\npid={100 + rank}\nrank={rank}\nsize=2\ncores=2\n")
    operations = [
        {
            "operation": "allreduce",
            "number": i + 1,
            "name": str(i),
            "tensors": [{"bytes": 4000, "dtype": "float32", "index": i, "parameter": f"layer{i}_weight"}],
        }
        for i in range(tensors)
    ]
    (place / "hook.jsonl").write_text("".join(json.dumps(line) + "\n" for line in operations))
    step, tensor = (part.ravel() for part in np.meshgrid(np.arange(steps), np.arange(tensors), indexing="ij"))
    op = 1 + step * tensors + tensor
    begin = 1_000_000 + step * 200_000_000
    ready = begin + 1_000_000 + tensor * 500_000
    bucket_end = begin + 20_000_000 * (1 + tensor * 5 // tensors)
    zeros = np.zeros(len(op), dtype=np.int64)
    push = _records(
        raw.PUSH, begin + tensor * 1000, zeros + 900, zeros + 1, op | (tensor + 1) << 32, step << 32
    )
    entered = _records(raw.READY, ready, zeros + 5000, zeros, op, zeros)
    done = _records(raw.DONE, bucket_end + 5_000_000 + tensor * 1000, zeros + 500, zeros, op, zeros)
    at = np.arange(steps * 200, dtype=np.int64)
    control = _records(
        raw.MPI, 1_000_000 + at * 1_000_000, at * 0 + 90_000, at * 0 + (16 << 5 | 5 << 10), at * 0 + 24, at
    )
    data_step, data = (part.ravel() for part in np.meshgrid(np.arange(steps), np.arange(5), indexing="ij"))
    data_start = 1_000_000 + data_step * 200_000_000 + 20_000_000 * (1 + data) + 1000
    calls = _records(
        raw.MPI, data_start, data * 0 + 4_000_000, data * 0 + (17 << 5), data * 0 + 128_800, data
    )
    background = np.concatenate([done, control, calls])
    background = background[
        np.argsort(background["t"] + np.where(background["kind"] == raw.MPI, background["dur"], 0))
    ]
    total = 0
    for number, records in enumerate((push, entered, background)):
        header = np.zeros(1, dtype=raw.HEADER)
        header["magic"], header["version"], header["tid"] = b"VSKLOG1", raw.VERSION, 100 + number
        header["header_bytes"], header["record_bytes"] = 4096, raw.RECORD.itemsize
        path = place / f"{number}.{100 + number}.log"
        path.write_bytes(header.tobytes().ljust(4096, b"\0") + records.tobytes())
        total += len(records)
    return total


def _records(kind: int, start: Any, duration: Any, a: Any, b: Any, c: Any) -> Any:
    made = np.zeros(len(start), dtype=raw.RECORD)
    made["t"], made["dur"], made["kind"], made["a"], made["b"], made["c"] = start, duration, kind, a, b, c
    return made


def report_rows(quick: bool) -> Iterator[Row]:
    """The report of a large generated trace, in a process of its own."""
    ranks, steps = (4, 100) if quick else (64, 500)
    with tempfile.TemporaryDirectory() as name:
        rows = generate_trace(Path(name) / "trace", ranks, steps, 161)
        command = [sys.executable, "-m", "tracer_cases.scale", str(Path(name) / "trace")]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
        )
        seconds, megabytes = json.loads(done.stdout)
    case = f"report {ranks} ranks x {steps} steps ({rows / 1e6:.1f} million rows)"
    yield row(case, "time", seconds, "s", "lower", None if quick else 60.0, 1, None)
    yield row(case, "memory", megabytes, "MB", "lower", None if quick else 4000.0, 1, None)


def report_worker(path: Path) -> None:
    """Report `path` once and print seconds and peak memory in MB."""
    from vsketchdlc.tracer.report import report
    from vsketchdlc.tracer.trace import Trace

    start = time.perf_counter()
    report(Trace.open(path))
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6]))


def generate_trace(folder: Path, ranks: int, steps: int, tensors: int) -> int:
    """Write a trace of `ranks` x `steps` x `tensors` straight as Parquet; returns its rows."""
    from dataclasses import asdict

    import duckdb
    from vsketchdlc.tracer.trace import HostInfo, TensorInfo, TraceMeta

    rows = 0
    with duckdb.connect() as connection:
        connection.execute("set threads to 2")
        for rank in range(ranks):
            place = folder / "events" / f"rank={rank}"
            place.mkdir(parents=True)
            connection.execute(GENERATED.format(rank=rank, host=rank // 4, steps=steps, tensors=tensors))
            connection.execute(f"copy made to '{place}/part-0.parquet' (format parquet, compression zstd)")
            found = connection.execute("select count(*) from made").fetchone()
            rows += found[0] if found else 0
    hosts = [HostInfo(f"h{host}", 4, list(range(4 * host, 4 * host + 4))) for host in range((ranks + 3) // 4)]
    infos = [
        TensorInfo(f"horovod_allreduce.{i}", f"p{i}_weight", f"layer{i // 2}", 1000 + 4000 * i, "float32", i)
        for i in range(tensors)
    ]
    meta = TraceMeta(hosts=hosts, ranks=ranks, tensors=infos)
    (folder / "meta.json").write_text(json.dumps(asdict(meta)))
    return rows


GENERATED = """
create or replace temp table made as
with s as (
    select range::int as step, range * 200000000 + {rank} * 1000 + (hash(range * 1000 + {rank}) % 2000000)::bigint as t
    from range({steps})
), g as (
    select range::int as i, 60000000 + (range * 100000000 // {tensors}) as ready, (range * 5 // {tensors})::int as bucket,
        1000 + range * 4000 as bytes, 'horovod_allreduce.' || range as tensor, 'layer' || (range // 2) as layer
    from range({tensors})
), b as (select bucket, sum(bytes)::bigint as bytes, max(ready) as last from g group by bucket),
rows as (
    select step, 'step' as track, 'forward' as kind, null as tensor, null as layer, null::int as bucket,
        null as bytes, t as t0, t + 50000000 as t1 from s
    union all select step, 'step', 'backward', null, null, null, null, t + 50000000, t + 160000000 from s
    union all select step, 'step', 'update', null, null, null, null, t + 180000000, t + 190000000 from s
    union all select step, 'python', 'push', tensor, layer, null, bytes, t + 52000000 + i * 2000, t + 52001000 + i * 2000 from s, g
    union all select step, 'tensors', 'ready', tensor, layer, null, bytes, t + 52000000 + i * 2000, t + ready from s, g
    union all select step, 'engine', 'enqueue', tensor, layer, null, bytes, t + ready, t + ready + 5000 from s, g
    union all select step, 'tensors', 'negotiate', tensor, layer, g.bucket, g.bytes, t + ready + 5000, t + last + 1000000
        from s, g join b using (bucket)
    union all select step, 'tensors', 'done', tensor, layer, g.bucket, g.bytes, t + last + 6000000,
        t + last + 7000000 + i * 1000 from s, g join b using (bucket)
    union all select step, 'horovod', 'allreduce', null, null, bucket, bytes, t + last + 2000000, t + last + 6000000 from s, b
    union all select step, 'horovod', 'fuse_in', null, null, bucket, bytes, t + last + 1000000, t + last + 2000000 from s, b
    union all select step, 'horovod', 'fuse_out', null, null, bucket, bytes, t + last + 6000000, t + last + 7000000 from s, b
    union all select step, 'horovod', 'negotiate', null, null, null, 24, t + range * 1000000, t + range * 1000000 + 100000
        from s, range(200)
)
select step, {rank} as rank, 'h{host}' as host, ({host}::bigint << 32) + {rank} + 1000 as process, track, kind, tensor,
    layer, bucket, bytes::bigint as bytes, null::varchar as peer, null::varchar as flow, null::int as lane,
    t0::bigint as t_start_ns, t1::bigint as t_end_ns, null::bigint as "offset" from rows order by t0
"""


if __name__ == "__main__":  # the report in a process of its own
    report_worker(Path(sys.argv[1]))
