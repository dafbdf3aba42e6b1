"""A tiny network trained by Horovod, the way a user writes it: python train_tiny.py [STEPS] [BATCH]."""

import sys

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
batch = int(sys.argv[2]) if len(sys.argv) > 2 else 8
hvd.init()
mx.random.seed(hvd.rank())
net = gluon.nn.HybridSequential()
net.add(
    gluon.nn.Conv2D(8, 3, activation="relu"),
    gluon.nn.MaxPool2D(),
    gluon.nn.Dense(64, activation="relu"),
    gluon.nn.Dense(10),
)
net.initialize(mx.init.Xavier())
net.hybridize()
parameters = net.collect_params()
hvd.broadcast_parameters(parameters, root_rank=0)
trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 0.01})
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
data = mx.nd.random.uniform(shape=(batch, 3, 16, 16))
label = mx.nd.arange(batch) % 10
for _step in range(steps):
    with autograd.record():
        loss = loss_of(net(data), label)
    loss.backward()
    trainer.step(batch)
    loss.wait_to_read()
mx.nd.waitall()
print(f"rank {hvd.rank()} did {steps} steps, loss {float(loss.mean().asscalar()):.3f}", flush=True)
