"""What the library adds to one recorded event, in a C program that does nothing else.

The least of several runs without the library is taken from the least with it: other programs only ever add time.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from vsketchdlc.tracer.recording import LIBRARY

from .rows import Row, row

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
    char byte[64] = {0}, sink[128];
    /* A greeting of ZMTP 3, and a message of ps-lite's form: Meta, key, value. */
    static const char greeting[64] = {(char)0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    static const char message[46 + 10 + 12] = {[0] = 1, [1] = 44, [46] = 1, [47] = 8, [56] = 0, [57] = 10};
    void (*mark)(int, int) = (void (*)(int, int))dlsym(RTLD_DEFAULT, "vsketch_mark");
    void (*join)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "vsketch_join");
    if (join) join();
    bind(listener, (void *)&address, size); listen(listener, 1); getsockname(listener, (void *)&address, &size);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0); connect(pair[0], (void *)&address, size); pair[1] = accept(listener, 0, 0);
    if (argv[1][0] == 'z' && (send(pair[0], greeting, 64, 0) != 64 || recv(pair[1], sink, 64, MSG_WAITALL) != 64)) return 1;
    for (int warm = 0; warm < 2; warm++) {
        double start = now();
        for (long i = 0; i < n; i++) switch (argv[1][0]) {
            case 'l': if (mark) mark(1, (int)i); break;
            case 'm': MPI_Barrier(0); break;
            case 'e': MXEnginePushAsync(operation, 0, deleter, 0, 0, 0, 0, 0, 0, 0, "horovod_allreduce", 0); break;
            case 'z': if (send(pair[0], message, sizeof message, 0) != (ssize_t)sizeof message ||
                          recv(pair[1], sink, sizeof message, MSG_WAITALL) != (ssize_t)sizeof message) return 1; break;
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


@dataclass(frozen=True)
class Event:
    """Letter of the C program, what it does, events of one turn, target in ns; `sampled`: with TCP_INFO each time."""

    letter: str
    what: str
    per_turn: int
    target_ns: float | None = 150.0
    sampled: bool = False


EVENTS = (
    Event("l", "one record", 1),
    Event("m", "MPI call", 1),
    Event("e", "engine event (push, ready, done)", 3),
    Event("t", "TCP send or receive", 2),
    Event("t", "TCP send or receive with TCP_INFO", 2, None, sampled=True),
    Event("z", "TCP send or receive of a ps-lite message, parsed", 2, None),
)


def event_rows(quick: bool) -> Iterator[Row]:
    """Nanoseconds added to one event: the program with the library, less the program without."""
    turns, rounds = (100_000, 3) if quick else (1_000_000, 11)
    with tempfile.TemporaryDirectory() as name:
        program = _compiled(Path(name))
        for event in EVENTS:
            plain, traced = [], []
            count = turns if event.letter not in "tz" else turns // 4
            for _ in range(rounds):
                plain.append(_turn_ns(program, event, count, None))
                with tempfile.TemporaryDirectory() as logs:
                    traced.append(_turn_ns(program, event, count, Path(logs)))
            value = (min(traced) - min(plain)) / event.per_turn
            differences = [(one - other) / event.per_turn for one, other in zip(traced, plain, strict=True)]
            spread = [float(x) for x in np.percentile(differences, [25, 75])]
            yield row("event", event.what, value, "ns", "lower", event.target_ns, rounds, spread)


def _compiled(folder: Path) -> Path:
    (folder / "event.c").write_text(EVENT_C)
    (folder / "stub.c").write_text(STUB_C)
    stub, program = folder / "libmpi.so", folder / "event"
    compiler = [os.environ.get("CC", "cc"), "-O2"]
    subprocess.run([*compiler, "-shared", "-fPIC", str(folder / "stub.c"), "-o", str(stub)], check=True)
    link = ["-ldl", str(stub), f"-Wl,-rpath,{folder}"]
    subprocess.run([*compiler, str(folder / "event.c"), *link, "-o", str(program)], check=True)
    return program


def _turn_ns(program: Path, event: Event, turns: int, logs: Path | None) -> float:
    environment = dict(os.environ)
    if logs is not None:
        every_ms = "0.000001" if event.sampled else "0"
        environment |= {"LD_PRELOAD": str(LIBRARY), "VSKETCH_DIR": str(logs), "VSKETCH_TCP_INFO_MS": every_ms}
    done = subprocess.run(
        [str(program), event.letter, str(turns)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
