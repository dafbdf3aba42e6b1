"""Layer tables of well-known networks: parameters and multiply-adds of each layer, built as their papers say.

A `Layer` is what becomes ready as one in the backward pass: its parameter tensors (elements each) and the
multiply-adds of one sample's forward pass, which share out the backward time. Layers are in forward order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    """One layer: `parameters` maps the tensor's suffix to its number of elements; `macs` for one sample."""

    name: str
    parameters: dict[str, int]
    macs: float


class _Image:
    """Builds the table of an image network while it keeps track of the map's height, width and channels."""

    def __init__(self, size: int, channels: int = 3) -> None:
        self.height = self.width = size
        self.channels = channels
        self.layers: list[Layer] = []
        self.counts: dict[str, int] = {}

    def name(self, kind: str) -> str:
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        return f"{kind}{number}"

    def conv(
        self,
        out: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        *,
        bias: bool = False,
        norm: bool = False,
    ) -> _Image:
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        ph, pw = (pad, pad) if isinstance(pad, int) else pad
        self.height = (self.height + 2 * ph - kh) // stride + 1
        self.width = (self.width + 2 * pw - kw) // stride + 1
        weights = out * self.channels * kh * kw
        parameters = {"weight": weights, **({"bias": out} if bias else {})}
        self.layers.append(Layer(self.name("conv"), parameters, float(weights * self.height * self.width)))
        self.channels = out
        if norm:
            work = 4.0 * out * self.height * self.width
            self.layers.append(Layer(self.name("batchnorm"), {"gamma": out, "beta": out}, work))
        return self

    def pool(self, kernel: int, stride: int, pad: int = 0) -> _Image:
        self.height = (self.height + 2 * pad - kernel) // stride + 1
        self.width = (self.width + 2 * pad - kernel) // stride + 1
        return self

    def dense(self, out: int, inputs: int | None = None) -> _Image:
        size = self.channels * self.height * self.width if inputs is None else inputs
        self.layers.append(Layer(self.name("dense"), {"weight": out * size, "bias": out}, float(out * size)))
        self.channels, self.height, self.width = out, 1, 1
        return self

    def branches(self, *paths: Callable[[_Image], object]) -> _Image:
        """Parallel paths from the same input, joined along the channels."""
        start = (self.height, self.width, self.channels)
        total = 0
        for path in paths:
            self.height, self.width, self.channels = start
            path(self)
            total += self.channels
        self.channels = total
        return self


def alexnet() -> list[Layer]:
    """AlexNet with one tower (Krizhevsky 2014, "One weird trick"; as in Gluon's and torchvision's zoo)."""
    net = _Image(224).conv(64, 11, 4, 2, bias=True).pool(3, 2).conv(192, 5, 1, 2, bias=True).pool(3, 2)
    net.conv(384, 3, 1, 1, bias=True).conv(256, 3, 1, 1, bias=True).conv(256, 3, 1, 1, bias=True).pool(3, 2)
    return net.dense(4096).dense(4096).dense(1000).layers


def vgg16() -> list[Layer]:
    """VGG-16 (Simonyan and Zisserman 2014), configuration D."""
    net = _Image(224)
    for repeats, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(repeats):
            net.conv(channels, 3, 1, 1, bias=True)
        net.pool(2, 2)
    return net.dense(4096).dense(4096).dense(1000).layers


def _resnet(blocks: tuple[int, int, int, int]) -> list[Layer]:
    net = _Image(224).conv(64, 7, 2, 3, norm=True).pool(3, 2, 1)
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            start = (net.height, net.width, net.channels)
            net.conv(width, 1, 1, norm=True).conv(width, 3, stride, 1, norm=True).conv(
                4 * width, 1, norm=True
            )
            if not block:
                after = (net.height, net.width, net.channels)
                net.height, net.width, net.channels = start
                net.conv(4 * width, 1, stride, norm=True)
                net.height, net.width, net.channels = after
    net.height = net.width = 1
    return net.dense(1000).layers


def resnet50() -> list[Layer]:
    """ResNet-50 (He et al. 2015), stride in the 3x3 convolution."""
    return _resnet((3, 4, 6, 3))


def resnet152() -> list[Layer]:
    """ResNet-152 (He et al. 2015), stride in the 3x3 convolution."""
    return _resnet((3, 8, 36, 3))


def inception_v3() -> list[Layer]:
    """Inception-v3 (Szegedy et al. 2015) without the auxiliary classifier, 299 x 299."""
    net = _Image(299)

    def unit(
        out: int, kernel: int | tuple[int, int], stride: int = 1, pad: int | tuple[int, int] = 0
    ) -> None:
        net.conv(out, kernel, stride, pad, norm=True)

    def chain(*units: tuple[Any, ...]) -> Callable[[_Image], object]:
        def run(_: _Image) -> None:
            for step in units:
                unit(*step)

        return run

    def split(image: _Image) -> None:
        image.branches(chain((384, (1, 3), 1, (0, 1))), chain((384, (3, 1), 1, (1, 0))))

    def split_after(*units: tuple[Any, ...]) -> Callable[[_Image], object]:
        def run(image: _Image) -> None:
            chain(*units)(image)
            split(image)

        return run

    for step in ((32, 3, 2), (32, 3), (64, 3, 1, 1)):
        unit(*step)
    net.pool(3, 2)
    unit(80, 1)
    unit(192, 3)
    net.pool(3, 2)
    for pooled in (32, 64, 64):
        net.branches(
            chain((64, 1)),
            chain((48, 1), (64, 5, 1, 2)),
            chain((64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
            chain((pooled, 1)),
        )
    net.branches(
        chain((384, 3, 2)), chain((64, 1), (96, 3, 1, 1), (96, 3, 2)), lambda image: image.pool(3, 2)
    )
    for c in (128, 160, 160, 192):
        net.branches(
            chain((192, 1)),
            chain((c, 1), (c, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0))),
            chain(
                (c, 1),
                (c, (7, 1), 1, (3, 0)),
                (c, (1, 7), 1, (0, 3)),
                (c, (7, 1), 1, (3, 0)),
                (192, (1, 7), 1, (0, 3)),
            ),
            chain((192, 1)),
        )
    net.branches(
        chain((192, 1), (320, 3, 2)),
        chain((192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)),
        lambda image: image.pool(3, 2),
    )
    for _ in range(2):
        net.branches(
            chain((320, 1)),
            split_after((384, 1)),
            split_after((448, 1), (384, 3, 1, 1)),
            chain((192, 1)),
        )
    net.height = net.width = 1
    return net.dense(1000).layers


def _bert(blocks: int, width: int, length: int = 128) -> list[Layer]:
    vocabulary, positions, feed = 30522, 512, 4 * width
    layers = [
        Layer(
            "embeddings",
            {
                "word_weight": vocabulary * width,
                "position_weight": positions * width,
                "type_weight": 2 * width,
                "norm_gamma": width,
                "norm_beta": width,
            },
            10.0 * width * length,
        )
    ]

    def dense(name: str, inputs: int, out: int, extra: float = 0.0) -> Layer:
        return Layer(name, {"weight": inputs * out, "bias": out}, float(inputs * out * length) + extra)

    attention = float(length * length * width)
    for block in range(blocks):
        for part in ("query", "key", "value"):
            layers.append(dense(f"block{block}_{part}", width, width, attention * 2 / 3))
        layers.append(dense(f"block{block}_attention_out", width, width))
        layers.append(
            Layer(f"block{block}_attention_norm", {"gamma": width, "beta": width}, 8.0 * width * length)
        )
        layers.append(dense(f"block{block}_feed_in", width, feed))
        layers.append(dense(f"block{block}_feed_out", feed, width))
        layers.append(Layer(f"block{block}_feed_norm", {"gamma": width, "beta": width}, 8.0 * width * length))
    layers.append(Layer("pooler", {"weight": width * width, "bias": width}, float(width * width)))
    return layers


def bert_base() -> list[Layer]:
    """BERT-base, uncased (Devlin et al. 2018): 12 blocks of width 768 and the pooler, 128 tokens."""
    return _bert(12, 768)


def bert_large() -> list[Layer]:
    """BERT-large, uncased (Devlin et al. 2018): 24 blocks of width 1024 and the pooler, 128 tokens."""
    return _bert(24, 1024)


NETWORKS: dict[str, Callable[[], list[Layer]]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet50": resnet50,
    "resnet152": resnet152,
    "inception-v3": inception_v3,
    "bert-base": bert_base,
    "bert-large": bert_large,
}
