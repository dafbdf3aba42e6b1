"""One rank of `step.py`: MODEL IMAGE BATCH PAIRS ANSWER. Every step runs in one of the modes, drawn alike on all ranks."""

from __future__ import annotations

import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # may be started later; before Horovod's own start

import horovod.mxnet as hvd
import mxnet as mx
import vsketchdlc
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.recording import LIBRARY

WARM_UP = 4
OTHERS_EVERY = 8
"""Pairs of the other tools are fewer: they are there to compare with."""
_KINDS = {
    **dict.fromkeys((raw.PUSH, raw.READY, raw.DONE), "engine"),
    **dict.fromkeys((raw.SEND, raw.RECV), "tcp"),
    **dict.fromkeys((raw.THREAD_CPU, raw.THREAD_RUN, raw.PROCESS_CPU, raw.HOST_CPU, raw.TCP_INFO), "sample"),
    raw.MPI: "mpi",
    raw.MARK: "mark",
}


def training(model: str, image: int, batch: int) -> Callable[[], float]:
    """A step of real training, which returns its seconds."""
    net = vision.get_model(model, classes=1000)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    images = mx.nd.random.uniform(shape=(batch, 3, image, image))
    labels = mx.nd.zeros((batch,))
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1e-4})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> float:
        start = time.perf_counter()
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(batch)
        mx.nd.waitall()
        return time.perf_counter() - start

    return step


def switches(answer: Path) -> dict[str, Callable[[bool], object]]:
    """What turns each way of recording on and off."""
    mx.profiler.set_config(profile_all=True, filename=str(answer.with_suffix(f".{hvd.rank()}.prof")))

    def traced(on: bool) -> None:
        assert vsketchdlc.start_trace() if on else vsketchdlc.stop_trace(), "this rank is not traced"

    def timeline(on: bool) -> None:
        if on:
            hvd.start_timeline(str(answer.with_suffix(".timeline")))
        else:
            hvd.stop_timeline()

    return {
        "traced": traced,
        "Horovod timeline": timeline,
        "MXNet profiler": lambda on: mx.profiler.set_state("run" if on else "stop"),
    }


def records() -> Counter[str]:
    """What this process has recorded so far, by what it costs."""
    library = ctypes.PyDLL(None)
    library.vsketch_folder.restype = ctypes.c_char_p
    found: Counter[str] = Counter()
    for log in raw.read_process(Path(os.fsdecode(library.vsketch_folder()))).logs:
        for kind in log.records["kind"].tolist():
            found[_KINDS.get(kind, "other")] += 1
    return found


def hook_seconds_per_push() -> float:
    """What the start-up hook's Python adds to one push while recording."""
    library = sys.modules["_vsketch_hook"].Library()
    hook = sys.modules["_vsketch_mxnet"].Hook(library)
    hook.numbers["allreduce", b"0"] = 1
    turns = 20_000
    name = ctypes.c_char_p(b"0")
    seconds = []
    for push in (lambda *_: 0, hook.named(lambda *_: 0, "allreduce", 7)):
        start = time.perf_counter()
        for _ in range(turns):
            push(None, None, name)
        seconds.append(time.perf_counter() - start)
    return (seconds[1] - seconds[0]) / turns


def mapped_mb() -> float:
    """Resident memory of the library and its logs in this process, MB; of the library's zeroed tables all of it."""
    sizes = subprocess.run(["size", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    zeroed = int(sizes.splitlines()[1].split()[2])
    resident, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and len(words) >= 5:
            ours = line.endswith(("libvsketch.so", ".log"))
        elif ours and words[0] == "Rss:":
            resident += int(words[1])
    return (resident * 1024 + zeroed) / 1e6


def threads() -> int:
    """Threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def main(model: str, image: int, batch: int, pairs: int, answer: Path) -> None:
    """Run the pairs; rank 0 writes what it found."""
    hvd.init()
    step = training(model, image, batch)
    modes = switches(answer)
    for _ in range(WARM_UP):
        step()
    threads_before = threads()
    modes["traced"](True)
    step()
    hook_s = hook_seconds_per_push()
    threads_added = threads() - threads_before
    modes["traced"](False)
    draw = random.Random(1)  # the same on all ranks
    relative: dict[str, list[float]] = {mode: [] for mode in modes}
    plain: list[float] = []
    before, traced_steps = records(), 0
    for number in range(pairs):
        for mode, switch in modes.items():
            if mode != "traced" and number % OTHERS_EVERY:
                continue
            seconds = {}
            for on in draw.sample([False, True], 2):
                switch(on)
                if mode != "traced":
                    step()  # the others settle first; tracing is on and off at once
                seconds[on] = step()
            switch(False)
            relative[mode].append(100 * (seconds[True] - seconds[False]) / seconds[False])
            plain.append(seconds[False])
            traced_steps += mode == "traced"
    made = records()
    made.subtract(before)
    pushes = made["engine"] / 3 / traced_steps
    outcome = {
        "relative": relative,
        "step_s": statistics.median(plain),
        "memory_mb": mapped_mb(),
        "threads_added": threads_added,
        "records_per_step": {kind: count / traced_steps for kind, count in made.items()},
        "hook_s_per_step": hook_s * pushes,
    }
    if hvd.rank() == 0:
        answer.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
