"""Every collective that Horovod has for MXNet, once; and a trainer that reduces in groups."""

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon

hvd.init()
size = hvd.size()
ones = mx.nd.ones((4, 8))
hvd.allgather(ones, name="gathered").wait_to_read()
hvd.alltoall(mx.nd.ones((size * 2, 3)), name="exchanged").wait_to_read()
hvd.reducescatter(mx.nd.ones((size * 4, 8)), op=hvd.Sum, name="scattered").wait_to_read()
hvd.broadcast(ones, root_rank=0, name="told").wait_to_read()
hvd.allreduce(ones, op=hvd.Max, name="largest").wait_to_read()

net = gluon.nn.Dense(4, in_units=8)
net.initialize()
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, num_groups=1)
for _ in range(3):
    with autograd.record():
        loss = net(ones).sum()
    loss.backward()
    trainer.step(4)
mx.nd.waitall()
