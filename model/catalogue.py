"""Workloads of well-known networks on well-known devices, from published throughputs: no trace needed.

``catalogue_workload("vgg16", gpu="p100")`` takes the layer table of `model.networks` and the samples per
second of one device that somebody published, and shares the step time out: a third forward, two thirds
backward (each layer by its multiply-adds), and the update by its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError
from .networks import NETWORKS
from .workload import GradientTensor, StepSpread, Workload

TENSORFLOW = "tensorflow.org/performance/benchmarks, May 2017, one GPU, synthetic data"
MXNET = "mxnet.apache.org/api/faq/perf, MXNet 1.2.0.rc1, one GPU, training"
BERT_TABLE = "Horovod scaling table of BERT-Base over 10 GbE, first column (GPU not named; taken for a V100)"


@dataclass(frozen=True)
class Published:
    """One measured throughput: samples per second on one device at a batch size, and who says so."""

    samples_per_s: float
    batch: int
    source: str


PUBLISHED: dict[tuple[str, str], Published] = {
    ("alexnet", "p100"): Published(2987, 512, TENSORFLOW),
    ("vgg16", "p100"): Published(154, 64, TENSORFLOW),
    ("resnet50", "p100"): Published(219, 64, TENSORFLOW),
    ("resnet152", "p100"): Published(91.8, 64, TENSORFLOW),
    ("inception-v3", "p100"): Published(142, 64, TENSORFLOW),
    ("alexnet", "k80"): Published(656, 512, TENSORFLOW),
    ("vgg16", "k80"): Published(35.4, 32, TENSORFLOW),
    ("resnet50", "k80"): Published(51.9, 64, TENSORFLOW),
    ("resnet152", "k80"): Published(20.0, 32, TENSORFLOW),
    ("inception-v3", "k80"): Published(30.5, 64, TENSORFLOW),
    ("alexnet", "v100"): Published(2994.32, 256, MXNET),
    ("resnet50", "v100"): Published(343.19, 64, MXNET),
    ("inception-v3", "v100"): Published(247.43, 64, MXNET),
    ("bert-base", "v100"): Published(212.8, 64, BERT_TABLE),
}

# Where nobody published the pair: the device's speed on its neighbours against the P100's.
_V100_BY_P100 = 343.19 / 219
_DERIVED: dict[tuple[str, str], tuple[tuple[str, str], float, str]] = {
    ("vgg16", "v100"): (("vgg16", "p100"), _V100_BY_P100, "P100 value x the V100's gain on ResNet-50"),
    ("resnet152", "v100"): (
        ("resnet152", "p100"),
        _V100_BY_P100,
        "P100 value x the V100's gain on ResNet-50",
    ),
    ("bert-large", "v100"): (("bert-base", "v100"), 0.28, "BERT-base value x the ratio of multiply-adds"),
}
DEVICES = ("k80", "p100", "v100")
_DEVICE_MEMORY_BYTES_PER_S = {"k80": 240e9, "p100": 732e9, "v100": 900e9}
_UPDATE_PASSES = 5
"""SGD with momentum reads weight, gradient, momentum and writes weight and momentum."""


def published(model: str, gpu: str) -> Published:
    """Throughput of `model` on `gpu` and its source; raises UserError where there is none."""
    if model not in NETWORKS:
        raise UserError(f"model '{model}' is not in the catalogue; choose one of {', '.join(NETWORKS)}")
    if (model, gpu) in PUBLISHED:
        return PUBLISHED[model, gpu]
    if (model, gpu) in _DERIVED:
        base, factor, how = _DERIVED[model, gpu]
        return Published(PUBLISHED[base].samples_per_s * factor, PUBLISHED[base].batch, f"estimated: {how}")
    known = sorted({device for name, device in [*PUBLISHED, *_DERIVED] if name == model})
    raise UserError(f"no published time of {model} on '{gpu}'; choose one of {', '.join(known)}")


def catalogue_workload(model: str, gpu: str = "v100", batch_per_rank: int | None = None) -> Workload:
    """The workload of one rank with one `gpu` training `model`; the step grows in proportion to the batch."""
    speed = published(model, gpu)
    layers = NETWORKS[model]()
    step_s = speed.batch / speed.samples_per_s
    names = sorted(f"{layer.name}_{suffix}" for layer in layers for suffix in layer.parameters)
    index = {name: number for number, name in enumerate(names)}
    nbytes = 4 * sum(sum(layer.parameters.values()) for layer in layers)
    update_s = min(0.2 * step_s, _UPDATE_PASSES * nbytes / _DEVICE_MEMORY_BYTES_PER_S[gpu])
    compute_s = step_s - update_s
    forward_s, backward_s = compute_s / 3, compute_s * 2 / 3
    total = sum(layer.macs for layer in layers)
    tensors: list[GradientTensor] = []
    done = 0.0
    for layer in reversed(layers):
        done += layer.macs
        for suffix, count in sorted(layer.parameters.items()):
            name = f"{layer.name}_{suffix}"
            tensors.append(
                GradientTensor(name, layer.name, 4 * count, "float32", backward_s * done / total, index[name])
            )
    work = Workload(
        name=f"{model} on {gpu}",
        tensors=tuple(tensors),
        forward_s=forward_s,
        backward_s=max(backward_s, tensors[-1].ready_s),
        update_s=update_s,
        device="gpu",
        cpu_share=0.3,
        batch_per_rank=speed.batch,
        spread=StepSpread(compute=0.01, communication=0.03, correlation=0.3),
        source=f"{model}: {speed.samples_per_s:.4g} samples/s, batch {speed.batch}, {speed.source}",
    )
    return work if batch_per_rank is None else work.scaled(batch_per_rank=batch_per_rank)
