"""Horovod's tensor fusion: which ready gradients go into one allreduce (reference 2.1 and 8.4).

`FuseResponses` of Horovod 0.28.1, with its look-ahead: a tensor that does not fit is set aside, and the walk
goes on as long as the bucket plus everything set aside stays within the threshold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .workload import GradientTensor

DEFAULT_THRESHOLD_BYTES = 128 * 1024 * 1024
"""Horovod's HOROVOD_FUSION_THRESHOLD when it is not set."""


def rounded_threshold(threshold_bytes: int, local_size: int) -> int:
    """The threshold Horovod really uses: rounded up to a multiple of local_size * 8 * 64 bytes (reference 2.1)."""
    unit = local_size * 8 * 64
    return -(-threshold_bytes // unit) * unit


def fuse(tensors: Sequence[GradientTensor], threshold_bytes: int) -> list[list[GradientTensor]]:
    """Buckets for the gradients of one cycle, given in cache-bit order; each bucket is one allreduce.

    Only gradients of one type fuse. A gradient above the threshold goes alone.
    """
    queue = deque(tensors)
    buckets: list[list[GradientTensor]] = []
    while queue:
        bucket = [queue.popleft()]
        size = bucket[0].bytes
        aside: list[GradientTensor] = []
        aside_bytes = 0
        while queue:
            tensor = queue[0]
            if tensor.dtype == bucket[0].dtype and size + tensor.bytes <= threshold_bytes:
                bucket.append(queue.popleft())
                size += tensor.bytes
                continue
            aside_bytes += tensor.bytes
            if size + aside_bytes > threshold_bytes:
                break
            aside.append(queue.popleft())
        queue.extendleft(reversed(aside))
        buckets.append(bucket)
    return buckets
