"""Which formats of other tools there are. Apart from the readers, so that the command line starts without pandas."""

from __future__ import annotations

from enum import Enum


class ForeignFormat(str, Enum):
    """Formats that can be imported."""

    HOROVOD = "horovod"
    MXNET = "mxnet"
    KINETO = "kineto"
    CHAKRA = "chakra"
