"""Benchmark-only builds of the lanes: without the protection, and as threads of the rank. Never in the product."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

from vsketchdlc.fasthvd.settings import LIBRARY

from .jobs import Build

HERE = Path(__file__).parent
NATIVE = LIBRARY.parent / "native"
#: Below the repository, which all hosts of a lab see; git ignores it.
FOLDER = LIBRARY.parents[1] / "build" / "benchmarks"
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-pthread", "-Wall", "-Wextra", "-fvisibility=hidden")


def _compile(target: Path, *words: str | Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [os.environ.get("CC", "cc"), *FLAGS, *map(str, words), "-o", str(target)]
    subprocess.run(command, check=True, cwd=LIBRARY.parents[1])


def _sources(folder: str, without: str = "") -> list[Path]:
    return [path for path in sorted((NATIVE / folder).glob("*.c")) if path.name != without]


@functools.cache
def bare_build() -> Build:
    """The library with a switch `fasthvd_bare`: on, an allreduce ends without vote and copy-out (its result is lost)."""
    library = FOLDER / "bare" / "libfasthvd.so"
    _compile(library, "-DFASTHVD_BARE", *_sources("common"), *_sources("rank"), "-shared", "-ldl")
    return Build(library=library)


@functools.cache
def threads_build() -> Build:
    """The library with the lanes' own code in it, started as threads: `threads.c` takes the place of spawn.c and main.c."""
    library = FOLDER / "threads" / "libfasthvd.so"
    sources = [*_sources("common"), *_sources("rank", without="spawn.c"), *_sources("lane", without="main.c")]
    _compile(library, "-include", HERE / "threads.h", *sources, HERE / "threads.c", "-shared", "-ldl")
    return Build(library=library)
