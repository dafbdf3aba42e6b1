"""Compute of a live replay as threads that burn CPU time, as many as the recorded run had busy.

Python's thread waits meanwhile, as it does in a training; the threads burn outside Python's lock, so Horovod's own
threads meet what they meet there: cores that are busy.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time

_BITE_ROUNDS = 200  # about 0.1 ms of hashing between two looks at the thread's clock


class BusyThreads:
    """`count` threads that wait to be told to burn CPU time."""

    def __init__(self, count: int) -> None:
        self._orders = [queue.SimpleQueue[float]() for _ in range(count)]
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        for orders in self._orders:
            threading.Thread(target=self._work, args=(orders,), daemon=True).start()

    def __call__(self, seconds: float) -> None:
        """Burn `seconds` on every thread; returns when all have."""
        if seconds <= 0:
            return
        for orders in self._orders:
            orders.put(seconds)
        for _ in self._orders:
            self._done.get()

    def _work(self, orders: queue.SimpleQueue[float]) -> None:
        while True:
            burn(orders.get())
            self._done.put(None)


def burn(seconds: float) -> None:
    """Burn `seconds` of this thread's CPU time: beside busy lanes that lasts longer, as real compute does."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        hashlib.pbkdf2_hmac("sha256", b"replay", b"salt", _BITE_ROUNDS)
