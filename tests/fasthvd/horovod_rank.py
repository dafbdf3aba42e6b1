"""A rank of the live tests with real Horovod: `horovod_rank.py STEPS ELEMENTS`, two gradients of so many float32 a step."""

from __future__ import annotations

import os
import sys

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("HOROVOD_RANK", "0")))
if os.environ.get(
    "TEST_RANKS_PER_HOST"
):  # before MPI is initialised: ranks of one machine play several hosts
    os.environ["FASTHVD_HOST_ID"] = f"host{RANK // int(os.environ['TEST_RANKS_PER_HOST'])}"

import horovod.mxnet as hvd  # noqa: E402
import mxnet as mx  # noqa: E402

hvd.init()
steps, elements = (int(word) for word in sys.argv[1:3])
for step in range(steps):
    gradients = [mx.nd.full((elements,), hvd.rank() + step + index) for index in range(2)]
    for index, gradient in enumerate(gradients):
        hvd.allreduce_(gradient, average=False, name=str(index), priority=-index)
    for index, gradient in enumerate(gradients):
        assert (gradient == sum(range(hvd.size())) + hvd.size() * (step + index)).asnumpy().all()
if hvd.rank() == 0:
    print(f"steps {steps} ok", flush=True)
