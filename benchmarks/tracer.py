"""What tracing costs: one event, a training step, memory; how fast logs become a trace and a trace a report.

    benchmarks/tracer.py [--quick] [--json FILE] [--only CASE]

* `event`: nanoseconds that the library adds to one recorded event, in a C program that does nothing else.
* `step`: two ranks train a network of Gluon's model zoo over TCP; in one and the same run single steps without and
  with tracing take turns, and so do steps under Horovod's timeline and under MXNet's profiler. A value is the median
  over pairs of (traced - untraced) / untraced, its spread the 95 % interval (bootstrap).
* `convert`, `report`: generated logs of a million events, a generated trace of 64 ranks x 500 steps x 161 tensors.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.recording import HOOK_FOLDER, LIBRARY

HERE = Path(__file__).resolve()
Row = dict[str, Any]

EVENT_C = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int MPI_Barrier(void *); /* of the stub, or the library's in front of it */
int MXEnginePushAsync(void (*)(void *, void *, void *), void *, void (*)(void *), const void *, const void *, int,
                      const void *, int, const void *, int, const char *, _Bool);
static void operation(void *context, void *complete, void *parameter) {
    struct { void (*function)(void *, void *, const void *); void *engine, *parameter; } copy;
    (void)context; (void)parameter;
    memcpy(&copy, complete, sizeof copy);
    copy.function(copy.engine, copy.parameter, 0);
}
static void deleter(void *parameter) { (void)parameter; }
int main(int argc, char **argv) {
    long n = atol(argv[2]);
    int pair[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    char byte[64] = {0};
    void (*mark)(int, int) = (void (*)(int, int))dlsym(RTLD_DEFAULT, "vsketch_mark");
    void (*join)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "vsketch_join");
    if (join) join();
    bind(listener, (void *)&address, size); listen(listener, 1); getsockname(listener, (void *)&address, &size);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0); connect(pair[0], (void *)&address, size); pair[1] = accept(listener, 0, 0);
    for (int warm = 0; warm < 2; warm++) {
        double start = now();
        for (long i = 0; i < n; i++) switch (argv[1][0]) {
            case 'l': if (mark) mark(1, (int)i); break;
            case 'm': MPI_Barrier(0); break;
            case 'e': MXEnginePushAsync(operation, 0, deleter, 0, 0, 0, 0, 0, 0, 0, "horovod_allreduce", 0); break;
            case 't': if (send(pair[0], byte, 64, 0) != 64 || recv(pair[1], byte, 64, MSG_WAITALL) != 64) return 1; break;
        }
        if (warm) printf("%.3f\n", (now() - start) / n);
    }
    return argc < 2;
}
"""
STUB_C = r"""
int MPI_Barrier(void *c) { (void)c; return 0; }
int PMPI_Comm_size(void *c, int *n) { (void)c; *n = 1; return 0; }
int PMPI_Comm_rank(void *c, int *n) { (void)c; *n = 0; return 0; }
char ompi_mpi_comm_world[64];
static void complete(void *e, void *p, const void *r) { (void)e; (void)p; (void)r; }
int MXEnginePushAsync(void (*f)(void *, void *, void *), void *p, void (*d)(void *), const void *c, const void *v, int n,
                      const void *m, int k, const void *q, int r, const char *s, _Bool w) {
    (void)c; (void)v; (void)n; (void)m; (void)k; (void)q; (void)r; (void)s; (void)w;
    struct { void (*function)(void *, void *, const void *); void *engine, *parameter; } done = {complete, 0, 0};
    f(0, &done, p);
    d(p);
    return 0;
}
"""
#: Letter of the C program, what it does, events of one turn, target in ns.
EVENTS = (
    ("l", "one record", 1, 150.0),
    ("m", "MPI call", 1, 150.0),
    ("e", "engine operation (push, ready, done)", 3, 150.0),
    ("t", "TCP send or receive", 2, 150.0),
)


def event_rows(quick: bool) -> Iterator[Row]:
    """Nanoseconds added to one event: the program with the library, less the program without."""
    turns, rounds = (100_000, 3) if quick else (1_000_000, 11)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "event.c").write_text(EVENT_C)
        (folder / "stub.c").write_text(STUB_C)
        stub = folder / "libmpi.so"
        compiler = [os.environ.get("CC", "cc"), "-O2"]
        subprocess.run([*compiler, "-shared", "-fPIC", str(folder / "stub.c"), "-o", str(stub)], check=True)
        program = folder / "event"
        link = ["-ldl", str(stub), f"-Wl,-rpath,{folder}"]
        subprocess.run([*compiler, str(folder / "event.c"), *link, "-o", str(program)], check=True)
        for letter, what, events, target in EVENTS:
            plain, traced = [], []
            count = turns if letter != "t" else turns // 4
            for _ in range(rounds):
                plain.append(_turn_ns(program, letter, count, None))
                with tempfile.TemporaryDirectory() as logs:
                    traced.append(_turn_ns(program, letter, count, Path(logs)))
            # Other programs only ever add time: the least of each is the cost, the quartiles tell the noise.
            value = (min(traced) - min(plain)) / events
            differences = [(one - other) / events for one, other in zip(traced, plain, strict=True)]
            spread = [float(x) for x in np.percentile(differences, [25, 75])]
            yield _row("event", what, value, "ns", "lower", target, rounds, spread)


def _turn_ns(program: Path, letter: str, turns: int, logs: Path | None) -> float:
    environment = dict(os.environ)
    if logs is not None:
        environment |= {"LD_PRELOAD": str(LIBRARY), "VSKETCH_DIR": str(logs), "VSKETCH_TCP_INFO_MS": "0"}
    done = subprocess.run(
        [str(program), letter, str(turns)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def step_rows(quick: bool) -> Iterator[Row]:
    """Relative cost for a training step, and the memory of the traced ranks."""
    for model, image, batch in (("alexnet", 224, 1), ("resnet50_v1", 64, 1)):
        pairs = 12 if quick else 120
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            answer = folder / "answer.json"
            passed = {
                "LD_PRELOAD": LIBRARY,
                "PYTHONPATH": HOOK_FOLDER,
                "VSKETCH_DIR": folder / "logs",
                "HOROVOD_TIMELINE": "DYNAMIC",
                "OMP_NUM_THREADS": 1,
            }
            variables = ";".join(f"{key}={value}" for key, value in passed.items())
            launch = (
                "mpirun --allow-run-as-root --bind-to none --mca btl tcp,self --mca btl_tcp_if_include lo"
            )
            launch += " --mca mpi_yield_when_idle 1 -np 2"
            command = [*launch.split(), sys.executable, str(HERE), "--worker", model, str(image), str(batch)]
            environment = {**os.environ, "OMPI_MCA_mca_base_env_list": variables}
            subprocess.run(
                [*command, str(pairs), str(answer)], env=environment, check=True, stdout=sys.stderr
            )
            found = json.loads(answer.read_text())
        for variant, values in found["relative"].items():
            target = 1.0 if variant == "traced" else None
            middle, low, high = _bootstrap(values)
            case = f"step {model} ({found['step_s'] * 1e3:.0f} ms)"
            yield _row(case, variant, middle, "%", "lower", target, len(values), [low, high])
        yield _row(f"memory {model}", "traced", found["memory_mb"], "MB", "lower", 64.0, 1, None)


def worker(model: str, image: int, batch: int, pairs: int, answer: Path) -> None:
    """One rank of `step_rows`: every step runs in one of the modes, drawn alike on all ranks."""
    import ctypes

    import horovod.mxnet as hvd
    import mxnet as mx
    from mxnet import autograd, gluon
    from mxnet.gluon.model_zoo import vision

    library = ctypes.PyDLL(None)
    hvd.init()
    net = vision.get_model(model, classes=1000)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    images = mx.nd.random.uniform(shape=(batch, 3, image, image))
    labels = mx.nd.zeros((batch,))
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1e-4})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    mx.profiler.set_config(profile_all=True, filename=str(answer.with_suffix(f".{hvd.rank()}.prof")))

    def step() -> float:
        start = time.perf_counter()
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(batch)
        mx.nd.waitall()
        return time.perf_counter() - start

    def timeline(on: bool) -> None:
        if on:
            hvd.start_timeline(str(answer.with_suffix(".timeline")))
        else:
            hvd.stop_timeline()

    modes: dict[str, Callable[[bool], object]] = {
        "traced": lambda on: library.vsketch_switch(int(on)),
        "Horovod timeline": timeline,
        "MXNet profiler": lambda on: mx.profiler.set_state("run" if on else "stop"),
    }
    library.vsketch_switch(0)
    for _ in range(4):
        step()
    draw = random.Random(1)  # the same on all ranks
    relative: dict[str, list[float]] = {mode: [] for mode in modes}
    plain: list[float] = []
    for number in range(pairs):
        for mode, switch in modes.items():
            if mode != "traced" and number % 4:
                continue
            seconds = {}
            for on in draw.sample([False, True], 2):
                switch(on)
                step()  # the first one settles
                seconds[on] = step()
            switch(False)
            relative[mode].append(100 * (seconds[True] - seconds[False]) / seconds[False])
            plain.append(seconds[False])
    if hvd.rank() == 0:
        outcome = {"relative": relative, "step_s": statistics.median(plain), "memory_mb": _mapped_mb()}
        answer.write_text(json.dumps(outcome))


def _mapped_mb() -> float:
    """Resident memory of the library and its logs in this process, MB."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and len(words) >= 5:
            ours = line.endswith(("libvsketch.so", ".log"))
        elif ours and words[0] == "Rss:":
            total += int(words[1])
    return total * 1024 / 1e6


def convert_rows(quick: bool) -> Iterator[Row]:
    """Raw logs of a generated training become a trace."""
    from vsketchdlc.tracer.decode.convert import convert

    steps = 100 if quick else 620
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = sum(_generated_process(folder / "logs", rank, steps, 161) for rank in range(2))
        rates = []
        for _ in range(3):
            start = time.perf_counter()
            convert(raw.read_recording(folder / "logs"), folder / "trace", [])
            rates.append(events / (time.perf_counter() - start))
    yield _row(
        "convert",
        f"{events:,} records",
        statistics.median(rates),
        "events/s",
        "higher",
        1e6,
        3,
        [min(rates), max(rates)],
    )


def _generated_process(folder: Path, rank: int, steps: int, tensors: int) -> int:
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
        command = [sys.executable, str(HERE), "--report-worker", str(Path(name) / "trace")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, megabytes = json.loads(done.stdout)
    case = f"report {ranks} ranks x {steps} steps ({rows / 1e6:.1f} million rows)"
    yield _row(case, "time", seconds, "s", "lower", None if quick else 60.0, 1, None)
    yield _row(case, "memory", megabytes, "MB", "lower", None if quick else 4000.0, 1, None)


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

CASES: dict[str, Callable[[bool], Iterator[Row]]] = {
    "event": event_rows,
    "step": step_rows,
    "convert": convert_rows,
    "report": report_rows,
}


def _row(
    case: str,
    variant: str,
    value: float,
    unit: str,
    better: str,
    target: float | None,
    runs: int,
    spread: list[float] | None,
) -> Row:
    return {
        "case": case,
        "variant": variant,
        "value": value,
        "unit": unit,
        "better": better,
        "target": target,
        "runs": runs,
        "spread": spread,
    }


def _bootstrap(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval."""
    draws = np.random.default_rng(0).choice(np.array(values), (2000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return statistics.median(values), float(low), float(high)


def main() -> None:
    """Run the cases, print a table, write the rows."""
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
        return
    if sys.argv[1:2] == ["--report-worker"]:
        report_worker(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--only", choices=list(CASES), help="one case alone")
    options = parser.parse_args()
    rows: list[Row] = []
    print(f"{'case':<50} {'variant':<38} {'value':>12} {'unit':<9} {'target':>9}  spread")
    for name, case in CASES.items():
        for row in case(options.quick) if options.only in (None, name) else ():
            rows.append(row)
            spread = "" if row["spread"] is None else f"{row['spread'][0]:.4g} to {row['spread'][1]:.4g}"
            target = "-" if row["target"] is None else f"{row['target']:.4g}"
            print(
                f"{row['case']:<50} {row['variant']:<38} {row['value']:>12.4g} {row['unit']:<9} {target:>9}  {spread}",
                flush=True,
            )
            if options.json:
                Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
