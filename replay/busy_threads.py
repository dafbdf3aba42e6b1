"""Compute of a live replay as threads that burn CPU time, as many as the recorded run had busy.

Python's thread waits meanwhile, as it does in a training; the threads burn outside Python's lock, so Horovod's own
threads meet what they meet there: cores that are busy all through the backward pass. The first thread hands the
gradients over itself, as the engine's thread does: did it wait for Python's, the core would be free at each of them, and
Horovod's thread would get it at once.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Sequence

Piece = tuple[float, Callable[[], None]]
"""Seconds of compute, and what is done after them."""

_BITE_ROUNDS = 200  # about 0.1 ms of hashing between two looks at the thread's clock


def nothing() -> None:
    """After a piece of compute that nobody waits for."""


class BusyThreads:
    """`count` threads that wait to be told to burn CPU time."""

    def __init__(self, count: int) -> None:
        self._orders = [queue.SimpleQueue[Sequence[Piece]]() for _ in range(count)]
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for orders in self._orders:
            threading.Thread(target=self._work, args=(orders,), daemon=True).start()

    def run(self, pieces: Sequence[Piece]) -> None:
        """Burn all pieces on every thread, one after the other without a pause; the first thread does what follows each.

        Returns when all threads are done; raises what a call raised.
        """
        burnt_only = [(seconds, nothing) for seconds, _ in pieces]
        for number, orders in enumerate(self._orders):
            orders.put(burnt_only if number else pieces)
        problems = [self._done.get() for _ in self._orders]
        for problem in problems:
            if problem is not None:
                raise problem

    def _work(self, orders: queue.SimpleQueue[Sequence[Piece]]) -> None:
        while True:
            problem: BaseException | None = None
            try:
                _burn_all(orders.get())
            except BaseException as error:  # the thread that waits raises it
                problem = error
            self._done.put(problem)


class Sleep:
    """Compute that takes no CPU time, as on a host with GPUs."""

    def run(self, pieces: Sequence[Piece]) -> None:
        """Sleep and call, piece by piece."""
        for seconds, then in pieces:
            time.sleep(seconds)
            then()


def _burn_all(pieces: Sequence[Piece]) -> None:
    """All pieces in this thread's CPU time: beside busy lanes that lasts longer, as real compute does."""
    end_s = time.thread_time()
    for seconds, then in pieces:
        end_s += seconds  # of the whole: what one piece took too long, the next is shorter
        while time.thread_time() < end_s:
            hashlib.pbkdf2_hmac("sha256", b"replay", b"salt", _BITE_ROUNDS)
        before_s = time.thread_time()
        then()
        end_s += time.thread_time() - before_s
