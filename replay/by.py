"""What the table of an offline replay has a row for."""

from __future__ import annotations

from enum import Enum


class By(str, Enum):
    """What the table has a row for."""

    KIND = "kind"
    TENSOR = "tensor"
    STEP = "step"
