"""A small network trained over MXNet's parameter servers: python train_kvstore.py [STEPS] [KVSTORE]."""

import sys

import mxnet as mx
from mxnet import autograd, gluon

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
kvstore = mx.kv.create(sys.argv[2] if len(sys.argv) > 2 else "dist_sync")
mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(64, in_units=128, activation="relu"), gluon.nn.Dense(10, in_units=64))
net.initialize(mx.init.Xavier())
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=kvstore)
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
data = mx.nd.random.uniform(shape=(16, 128))
label = mx.nd.arange(16) % 10
for _step in range(steps):
    with autograd.record():
        loss = loss_of(net(data), label)
    loss.backward()
    trainer.step(16)
    loss.wait_to_read()
mx.nd.waitall()
print(f"worker {kvstore.rank} of {kvstore.num_workers} did {steps} steps", flush=True)
