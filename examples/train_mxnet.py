"""Train an image classifier of Gluon's model zoo on generated images with unmodified Horovod.

Nothing in here knows of vsketchdlc: it is what a user's own script looks like.

    mpirun --bind-to none -np 2 -H a,b python train_mxnet.py --model alexnet --batch 4 --steps 12

Losses go to stdout (the same for every run with these seeds), the median time of a step to stderr.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="alexnet", help="a name of mxnet.gluon.model_zoo.vision")
    parser.add_argument("--batch", type=int, default=4, help="images per rank and step")
    parser.add_argument("--image", type=int, default=224, help="width and height of an image")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="rank 0 writes the time of each step to this file")
    parser.add_argument("--save", help="rank 0 saves the trained parameters to this file")
    return parser.parse_args()


def main():
    options = arguments()
    hvd.init()
    mx.random.seed(options.seed + hvd.rank())
    np.random.seed(options.seed + hvd.rank())

    net = vision.get_model(options.model, classes=options.classes)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    shape = (options.batch, 3, options.image, options.image)
    images = mx.nd.array(np.random.uniform(-1, 1, shape))
    labels = mx.nd.array(np.random.randint(0, options.classes, options.batch))
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(
        net.collect_params(), "sgd", {"learning_rate": 0.001 * hvd.size(), "momentum": 0.9}
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    step_seconds = []
    for step in range(options.steps):
        start = time.perf_counter()
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(options.batch)
        mx.nd.waitall()
        step_seconds.append(time.perf_counter() - start)
        if hvd.rank() == 0:
            print(f"step {step} loss {loss.mean().asscalar():.4f}", flush=True)

    if hvd.rank() == 0:
        print(f"median step {np.median(step_seconds[1:] or step_seconds):.3f} s", file=sys.stderr, flush=True)
    if hvd.rank() == 0 and options.json:
        with Path(options.json).open("w") as file:
            json.dump({"model": options.model, "ranks": hvd.size(), "step_s": step_seconds}, file)
    if hvd.rank() == 0 and options.save:
        net.save_parameters(options.save)
    hvd.shutdown()


if __name__ == "__main__":
    main()
