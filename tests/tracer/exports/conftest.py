"""Traces of trainings that never ran, in the shape that the recorder writes, and the strict Chrome reader."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from vsketchdlc.tracer.trace import HostInfo, TensorInfo, Trace, TraceMeta, write_trace

ALEXNET = [
    ("conv0_weight", 92_928), ("conv0_bias", 256), ("conv1_weight", 1_228_800), ("conv1_bias", 768),
    ("conv2_weight", 2_654_208), ("conv2_bias", 1_536), ("conv3_weight", 3_538_944), ("conv3_bias", 1_024),
    ("conv4_weight", 2_359_296), ("conv4_bias", 1_024), ("dense0_weight", 150_994_944), ("dense0_bias", 16_384),
    ("dense1_weight", 67_108_864), ("dense1_bias", 16_384), ("dense2_weight", 16_384_000), ("dense2_bias", 4_000),
]  # fmt: skip
BUCKET_BYTES = 64 << 20


def _buckets() -> list[list[int]]:
    """Tensors from the last layer to the first, packed up to the threshold as Horovod does."""
    groups: list[list[int]] = []
    room = 0
    for index in reversed(range(len(ALEXNET))):
        size = ALEXNET[index][1]
        if not groups or size > room:
            groups.append([])
            room = BUCKET_BYTES
        groups[-1].append(index)
        room -= size
    return groups


def training_events(ranks: int, steps: int, sockets: bool = False, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Rows as the recorder would write them for an AlexNet under stock Horovod."""
    chance = random.Random(seed)
    for rank in range(ranks):
        place = {"rank": rank, "host": f"h{rank}", "process": 4000 + rank}
        now = 5_000_000_000_000
        for step in range(steps):
            yield from _step(place, step, now, chance, sockets)
            now += 400_000_000


def _step(
    place: dict[str, Any], step: int, start: int, chance: random.Random, sockets: bool
) -> Iterator[dict[str, Any]]:
    def event(track: str, kind: str, t0: int, t1: int, **more: Any) -> dict[str, Any]:
        return {**place, "step": step, "track": track, "kind": kind, "t_start_ns": t0, "t_end_ns": t1, **more}

    backward = start + 60_000_000
    end = backward + 100_000_000
    yield event("main", "forward", start, backward)
    yield event("main", "backward", backward, end)
    ready_at = {}
    for order, index in enumerate(reversed(range(len(ALEXNET)))):
        name, size = ALEXNET[index]
        tensor = {"tensor": f"horovod_allreduce.{index}", "layer": name.rsplit("_", 1)[0], "bytes": size}
        push = backward + 300_000 + (len(ALEXNET) - index) * 20_000
        ready_at[index] = push + 5_000_000 + order * 6_000_000 + chance.randrange(1000)
        yield event("python", "push", push, push + 9_000, **tensor)
        yield event("engine", "ready", push + 9_000, ready_at[index], **tensor)
        yield event("engine", "enqueue", ready_at[index], ready_at[index] + 4_000, **tensor)
    now = backward
    for bucket, members in enumerate(_buckets()):
        size = sum(ALEXNET[index][1] for index in members)
        now = max(now, *(ready_at[index] + 4_000 for index in members)) + 900_000
        yield event("horovod", "negotiate", now - 60_000, now, bytes=24)
        if len(members) > 1:
            yield event("horovod", "fuse_in", now, now + size // 8, bucket=bucket, bytes=size)
            now += size // 8
        finish = now + 1_000_000 + size // 2
        yield event("horovod", "allreduce", now, finish, bucket=bucket, bytes=size)
        if sockets:
            kind = "socket_recv" if place["rank"] % 2 else "socket_send"
            tcp = {"bytes": 65_536, "flow": "10.0.0.1:4001>10.0.0.2:5001", "peer": "h1"}
            for number, at in enumerate(range(now, finish - 80_000, 80_000)):
                offset = (step << 40) + (bucket << 32) + number * 65_536
                yield event("tcp", kind, at + 100, at + 50_000, offset=offset, **tcp)
        for order, index in enumerate(members):
            name, bytes_ = ALEXNET[index]
            tensor = {
                "tensor": f"horovod_allreduce.{index}",
                "layer": name.rsplit("_", 1)[0],
                "bytes": bytes_,
            }
            yield event("horovod", "negotiate", ready_at[index] + 4_000, now - 60_000, **tensor)
            yield event("horovod", "done", finish, finish + 3_000 * order, bucket=bucket, **tensor)
        now = finish + 3_000 * len(members)
    yield event("main", "update", now, now + 8_000_000)


def training_meta(ranks: int) -> TraceMeta:
    return TraceMeta(
        ranks=ranks,
        hosts=[HostInfo(f"h{rank}", cores=2, ranks=[rank]) for rank in range(ranks)],
        tensors=[
            TensorInfo(
                f"horovod_allreduce.{i}", f"alexnet0_{name}", name.rsplit("_", 1)[0], size, "float32", i
            )
            for i, (name, size) in enumerate(ALEXNET)
        ],
    )


@pytest.fixture
def training_trace(tmp_path: Path) -> Callable[..., Trace]:
    def make(ranks: int = 2, steps: int = 4, sockets: bool = False, samples: Any = None) -> Trace:
        events = pd.DataFrame(list(training_events(ranks, steps, sockets)))
        for column in {"step", "rank", "bucket", "bytes", "offset"} & set(events.columns):
            events[column] = events[column].astype("Int64")
        return write_trace(tmp_path / "trace", training_meta(ranks), events, samples)

    return make


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def chrome_check() -> ModuleType:
    return _beside("chrome_check")


@pytest.fixture(scope="session")
def perfetto_check() -> ModuleType:
    return _beside("perfetto_check")
