"""The training that `validate` measures: real MXNet and Horovod, with the lane count changed between blocks of steps.

    mpirun --bind-to none -np 2 -H h0,h1 python -m vsketchdlc.validation.training --network resnet50_v1 \
        --batch 4 --image 64 --blocks 0,2,4 --steps 12 --result blocks.json

One job visits several counts, so a drift of the machine hits all of them alike. Rank 0 writes one entry a block:
``{"aux", "step_s": [...], "own_cores", "foreign_cores"}``; the last two are the cores that the job, and everything
else on the machine, kept busy meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from ..fasthvd.lane_switch import LaneSwitch, lanes_cpu_s

TINY_LAYERS = 60
GIANT_UNITS = (8192, 4096)


def main() -> None:
    """Train as the command line says."""
    options = _arguments()
    counts = [int(word) for word in options.blocks.split(",")]
    import horovod.mxnet as hvd
    import mxnet as mx

    hvd.init()
    # A job of 0 lanes alone has lanes under it, too, and would use them.
    lanes = LaneSwitch() if any(counts) or LaneSwitch.is_preloaded() else None
    step = _training(hvd, mx, options)
    blocks = []
    for aux in counts:
        if lanes is not None:
            lanes.use(aux)
        watch = _CoreWatch(hvd, mx)
        seconds = [_timed(step) for _ in range(options.steps)]
        own, foreign = watch.cores()
        blocks.append({"aux": aux, "step_s": seconds, "own_cores": own, "foreign_cores": foreign})
        if hvd.rank() == 0:
            print(f"{aux} lanes: {sorted(seconds)[len(seconds) // 2]:.3f} s", flush=True)
    if hvd.rank() == 0 and options.result:
        data = {"ranks": hvd.size(), "blocks": blocks}
        Path(options.result).write_text(json.dumps(data), encoding="utf-8")
    hvd.shutdown()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", required=True, help="a name of Gluon's model zoo, or tiny, or giant")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--blocks", default="0", help="lane counts to visit, in this order")
    parser.add_argument("--steps", type=int, default=1000, help="steps a block")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fp16", action="store_true", help="gradients travel as 16-bit numbers")
    parser.add_argument("--result", help="rank 0 writes the blocks to this file")
    return parser.parse_args()


def _training(hvd: Any, mx: Any, options: argparse.Namespace) -> Any:
    """One training step as a call that returns when all weights are written."""
    import numpy as np

    mx.random.seed(options.seed + hvd.rank())
    np.random.seed(options.seed + hvd.rank())
    net, shape, classes = _network(mx, options)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    images = mx.nd.array(np.random.uniform(-1, 1, shape))
    labels = mx.nd.array(np.random.randint(0, classes, options.batch))
    net(images)  # shapes of the weights are known from here on
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": 1e-4 * hvd.size(), "momentum": 0.9},
        compression=hvd.Compression.fp16 if options.fp16 else hvd.Compression.none,
    )
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> None:
        with mx.autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(options.batch)
        mx.nd.waitall()

    return step


def _network(mx: Any, options: argparse.Namespace) -> tuple[Any, tuple[int, ...], int]:
    """The network, its input's shape, its number of classes."""
    if options.network in ("tiny", "giant"):
        tiny = options.network == "tiny"
        units = [64] * TINY_LAYERS if tiny else [GIANT_UNITS[1]]
        net = mx.gluon.nn.HybridSequential()
        for count in units:
            net.add(mx.gluon.nn.Dense(count, activation="relu" if tiny else None, use_bias=tiny))
        return net, (options.batch, 64 if tiny else GIANT_UNITS[0]), units[-1]
    from mxnet.gluon.model_zoo import vision

    net = vision.get_model(options.network, classes=1000)
    return net, (options.batch, 3, options.image, options.image), 1000


def _timed(step: Any) -> float:
    start_s = time.perf_counter()
    step()
    return time.perf_counter() - start_s


class _CoreWatch:
    """Who keeps this machine's cores busy from now on: this job, or others."""

    def __init__(self, hvd: Any, mx: Any) -> None:
        self._hvd, self._mx = hvd, mx
        self._start_s, self._own_s, self._all_s = time.monotonic(), self._own(), machine_busy_s()

    def cores(self) -> tuple[float, float]:
        """Cores kept busy since the start by the ranks and lanes of this job, and by all others; equal on no rank but 0."""
        wall_s = time.monotonic() - self._start_s
        own_s, all_s = self._own() - self._own_s, machine_busy_s() - self._all_s
        mine = self._mx.nd.array([own_s])
        total_s = float(self._hvd.allreduce(mine, average=False, name="validate.cpu").asscalar())
        return total_s / wall_s, max(0.0, all_s - total_s) / wall_s

    def _own(self) -> float:
        lanes = lanes_cpu_s() if self._hvd.local_rank() == 0 else 0.0
        return time.process_time() + lanes


def machine_busy_s() -> float:
    """CPU seconds of all programs on this machine since it started, kernel work for its network left out."""
    user, nice, system = (int(word) for word in Path("/proc/stat").read_text().split(None, 4)[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
