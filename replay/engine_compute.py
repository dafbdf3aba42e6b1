"""Compute of a live replay as operations in MXNet's own engine: products of small matrices.

As in a training script, Python pushes the whole step and then waits: the engine's worker thread computes,
gradients become ready when the operation that writes them is done, and Horovod's threads meet a busy core.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

SIDE = 160  # one product takes some hundred microseconds: fine steps, few operations
CALIBRATION_PRODUCTS = 300


class EngineCompute:
    """A source of engine work of a given length, in seconds of an otherwise idle core."""

    def __init__(self, mx: Any) -> None:
        self._mx = mx
        self._mean = mx.nd.ones((SIDE, SIDE)) / SIDE
        self._product_s = self._calibrate()

    def _calibrate(self) -> float:
        """CPU seconds of one product; those of the process, as neighbours may be using the core."""
        self.state(CALIBRATION_PRODUCTS // 10)
        self._mx.nd.waitall()
        begin_s = time.process_time()
        self.state(CALIBRATION_PRODUCTS)
        self._mx.nd.waitall()
        return max(1e-6, (time.process_time() - begin_s) / CALIBRATION_PRODUCTS)

    def state(self, products: int) -> Any:
        """A matrix that is written after so many products."""
        state = self._mx.nd.ones((SIDE, SIDE))
        return self._chain(state, products)

    def after(self, state: Any, seconds: float) -> Any:
        """A matrix that is written `seconds` of work after `state` is."""
        return self._chain(state, round(seconds / self._product_s))

    def _chain(self, state: Any, products: int) -> Any:
        for _ in range(products):
            state = self._mx.nd.dot(self._mean, state)
        return state

    def write(self, array: Any, state: Any) -> None:
        """Have `array` (a gradient) written as soon as `state` is."""
        array[0:1] = state[0, 0:1].astype(array.dtype)

    def when_reduced(self, arrays: Sequence[Any]) -> Any:
        """A matrix that is written when all `arrays` are reduced."""
        state = self._mx.nd.ones((SIDE, SIDE))
        for array in arrays:
            state[0, 0:1] = array[0:1].astype("float32")
        return state
