"""A tiny network trained under MXNet's profiler: python profile_tiny.py FILE STEPS."""

import sys

import mxnet as mx
from mxnet import autograd, gluon, profiler

profiler.set_config(profile_all=True, filename=sys.argv[1], aggregate_stats=False)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Conv2D(8, 3, activation="relu"), gluon.nn.Dense(10))
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
data, label = mx.nd.random.uniform(shape=(8, 3, 16, 16)), mx.nd.arange(8) % 10
for step in range(int(sys.argv[2]) + 1):
    with autograd.record():
        loss = loss_of(net(data), label)
    loss.backward()
    trainer.step(8)
    mx.nd.waitall()
    if step == 0:
        profiler.set_state("run")
profiler.set_state("stop")
profiler.dump()
