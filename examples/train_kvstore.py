"""Train the same classifiers as train_mxnet.py over MXNet's own parameter servers (KVStore) instead of Horovod.

KVStore jobs have no launcher in MXNet's wheel; vsketchdlc starts one (2 workers, 1 server) and traces it:

    vsketchdlc trace --kvstore 2x1 -o trace -- python train_kvstore.py --model alexnet --batch 4 --steps 12

Losses go to stdout (the same for every run with these seeds), the median time of a step to stderr.
"""

import argparse
import sys
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="alexnet", help="a name of mxnet.gluon.model_zoo.vision")
    parser.add_argument("--batch", type=int, default=4, help="images per worker and step")
    parser.add_argument("--image", type=int, default=224, help="width and height of an image")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kvstore", default="dist_sync", choices=["dist_sync", "dist_async"])
    return parser.parse_args()


def main():
    options = arguments()
    kvstore = mx.kv.create(options.kvstore)
    mx.random.seed(options.seed + kvstore.rank)
    np.random.seed(options.seed + kvstore.rank)

    net = vision.get_model(options.model, classes=options.classes)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    shape = (options.batch, 3, options.image, options.image)
    images = mx.nd.array(np.random.uniform(-1, 1, shape))
    labels = mx.nd.array(np.random.randint(0, options.classes, options.batch))
    # Worker 0's first weights go to the servers, which keep them and do the update.
    settings = {"learning_rate": 0.001, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=kvstore)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    step_seconds = []
    for step in range(options.steps):
        start = time.perf_counter()
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(options.batch * kvstore.num_workers)
        mx.nd.waitall()
        step_seconds.append(time.perf_counter() - start)
        if kvstore.rank == 0:
            print(f"step {step} loss {loss.mean().asscalar():.4f}", flush=True)

    if kvstore.rank == 0:
        print(f"median step {np.median(step_seconds[1:] or step_seconds):.3f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
