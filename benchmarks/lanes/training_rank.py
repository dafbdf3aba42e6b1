"""One rank of a training job whose lane count changes from step to step, so that all variants share one run.

`training_rank.py PLAN.json`: the network of Gluon's model zoo, generated images, unmodified Horovod. Beside the
steps it measures C, a step without any exchange, and M, the exchange of all gradients as one vector without compute.
"""

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any


class Training:
    """The network, its trainer, and one step."""

    def __init__(self, model: str, batch: int) -> None:
        import horovod.mxnet as hvd
        import mxnet as mx
        from mxnet import autograd, gluon
        from mxnet.gluon.model_zoo import vision

        hvd.init()
        self.hvd, self.mx, self._autograd, self._batch = hvd, mx, autograd, batch
        self._net = vision.get_model(model, classes=1000)
        self._net.initialize(mx.init.Xavier())
        self._net.hybridize()
        self._images = mx.nd.random.uniform(-1, 1, shape=(batch, 3, 224, 224))
        self._labels = mx.nd.zeros((batch,))
        self._loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        parameters = self._net.collect_params()
        hvd.broadcast_parameters(parameters, root_rank=0)
        self._trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 1e-4, "momentum": 0.9})
        self._exchange = self._trainer._allreduce_grads
        self._parameters = parameters
        self._vector: Any = None

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients; the shapes are known from the first step on."""
        return sum(4 * p.data().size for p in self._parameters.values() if p.grad_req != "null")

    def step(self, exchange: bool) -> float:
        """Seconds of one step; without `exchange` every rank trains for itself."""
        self._trainer._allreduce_grads = self._exchange if exchange else lambda: None
        self._together()
        start = time.perf_counter()
        with self._autograd.record():
            loss = self._loss_of(self._net(self._images), self._labels)
        loss.backward()
        self._trainer.step(self._batch)
        self.mx.nd.waitall()
        return time.perf_counter() - start

    def wire(self) -> float:
        """Seconds of one allreduce of as many bytes as the gradients have, without compute beside it."""
        if self._vector is None:
            self._vector = self.mx.nd.zeros((self.gradient_bytes // 4,), dtype="float32")
            self._vector.wait_to_read()
        self._together()
        start = time.perf_counter()
        self.hvd.allreduce_(self._vector, average=False, name="bench.wire")
        self._vector.wait_to_read()
        return time.perf_counter() - start

    def _together(self) -> None:
        self.hvd.allreduce(self.mx.nd.zeros((1,)), name="bench.ready").wait_to_read()


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    training = Training(plan["model"], plan["batch"])
    use = ctypes.CDLL(None).fasthvd_use_lanes
    counts = plan["lanes"]
    use(max(counts))
    for _ in range(2):
        training.step(True)
    for _ in range(3):  # at its third coming a buffer is moved to huge pages
        training.wire()
    for count in counts:
        use(count)
        training.step(True)  # connections, pages
    times: dict[str, list[float]] = {f"step {count}": [] for count in counts} | {"compute": []}
    for number in range(plan["rounds"]):
        for count in counts if number % 2 == 0 else counts[::-1]:
            use(count)
            times[f"step {count}"].append(training.step(True))
        times["compute"].append(training.step(False))
    for count in (1, plan["wire_lanes"]):
        use(count)
        times[f"wire {count}"] = [training.wire() for _ in range(plan["rounds"])]
    use(0)
    answer = {"times": times, "gradient_bytes": training.gradient_bytes}
    Path(plan["results"], f"rank{training.hvd.rank()}.json").write_text(json.dumps(answer))
    training.hvd.shutdown()


if __name__ == "__main__":
    main()
