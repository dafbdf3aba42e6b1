"""Which allreduce Open MPI 5.0.11 runs and what it costs (reference 7.1 and 8.5).

The result is a list of `Stage`: exchanges between pairs of hosts, reductions, and rounds of latency. The
simulator turns each into one fluid activity; nothing here knows about time or contention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class Algorithm(str, Enum):
    """The algorithms of coll/tuned and coll/han that allreduce may take."""

    LINEAR = "linear"
    RECURSIVE_DOUBLING = "recursive doubling"
    RING = "ring"
    RABENSEIFNER = "Rabenseifner"
    NONOVERLAPPING = "nonoverlapping"
    HAN = "HAN"


_KI = 1024
_RING, _DOUBLING, _RAB, _NON = (
    Algorithm.RING,
    Algorithm.RECURSIVE_DOUBLING,
    Algorithm.RABENSEIFNER,
    Algorithm.NONOVERLAPPING,
)
# (first N above the row, [(bytes below which, algorithm), ...]); "segmented ring" with segment 0 is the plain ring.
_TABLE: list[tuple[int, list[tuple[float, Algorithm]]]] = [
    (
        4,
        [
            (8, _RING),
            (4 * _KI, _DOUBLING),
            (8 * _KI, _RING),
            (16 * _KI, _DOUBLING),
            (256 * _KI, _RING),
            (math.inf, _RAB),
        ],
    ),
    (8, [(16, _RING), (8 * _KI, _DOUBLING), (math.inf, _RAB)]),
    (16, [(8 * _KI, _DOUBLING), (math.inf, _RAB)]),
    (32, [(64, _RING), (4 * _KI, _DOUBLING), (math.inf, _RAB)]),
    (64, [(128, _RING), (math.inf, _RAB)]),
    (128, [(256 * _KI, _DOUBLING), (math.inf, _RAB)]),
    (256, [(128 * _KI, _NON), (256 * _KI, _DOUBLING), (math.inf, _RAB)]),
    (512, [(4 * _KI, _NON), (math.inf, _RAB)]),
    (2048, [(2 * _KI, _NON), (16 * _KI, _DOUBLING), (math.inf, _RAB)]),
]


def tuned_algorithm(ranks: int, nbytes: int, count: int) -> Algorithm:
    """The choice of coll/tuned's fixed rules for a commutative operation on `count` elements of `nbytes` in all."""
    row = next((row for below, row in _TABLE if ranks < below), _TABLE[-1][1])
    chosen = next(algorithm for below, algorithm in row if nbytes < below)
    if chosen is Algorithm.RING and count < ranks:
        return Algorithm.RECURSIVE_DOUBLING
    if chosen is Algorithm.RABENSEIFNER and count < 2 ** int(math.log2(ranks)):
        return Algorithm.LINEAR
    return chosen


def algorithm_for(hosts: int, ranks_per_host: int, nbytes: int, count: int) -> Algorithm:
    """HAN on several hosts with several ranks on one of them, else coll/tuned's choice over all ranks."""
    if hosts >= 2 and ranks_per_host >= 2:
        return Algorithm.HAN
    return tuned_algorithm(hosts * ranks_per_host, nbytes, count)


@dataclass(frozen=True)
class Stage:
    """One part of an allreduce, the same on every rank.

    ``exchange_bytes`` are sent *and* received by each rank at the same time with the rank `distance` away
    (0: the neighbours in the ring); ``one_way_bytes`` are only sent or only received; ``reduce_bytes`` are
    added by each rank afterwards. ``rounds`` counts the messages one after another in it.
    """

    rounds: int
    exchange_bytes: float = 0.0
    one_way_bytes: float = 0.0
    reduce_bytes: float = 0.0
    distance: int = 0


def stages(algorithm: Algorithm, ranks: int, nbytes: int) -> list[Stage]:
    """The stages of one allreduce of `nbytes` over `ranks` (reference 8.5); none for a single rank."""
    if ranks == 1:
        return []
    power = 2 ** int(math.log2(ranks))
    rest = ranks - power
    doublings = int(math.log2(ranks))
    if algorithm is Algorithm.RABENSEIFNER:
        return _rabenseifner(nbytes, power, rest, doublings)
    if algorithm is Algorithm.RING:
        part = nbytes * (ranks - 1) / ranks
        return [
            Stage(ranks - 1, exchange_bytes=part, reduce_bytes=part),
            Stage(ranks - 1, exchange_bytes=part),
        ]
    if algorithm is Algorithm.RECURSIVE_DOUBLING:
        steps = [
            Stage(1, exchange_bytes=nbytes, reduce_bytes=nbytes, distance=2**i) for i in range(doublings)
        ]
        if rest:
            around = [Stage(1, one_way_bytes=nbytes, reduce_bytes=nbytes, distance=1)]
            steps = [*around, *steps, Stage(1, one_way_bytes=nbytes, distance=1)]
        return steps
    # Linear and nonoverlapping: reduce to one rank along a tree, then broadcast.
    depth = ranks - 1 if algorithm is Algorithm.LINEAR else math.ceil(math.log2(ranks))
    return [
        Stage(depth, one_way_bytes=depth * nbytes, reduce_bytes=depth * nbytes, distance=1),
        Stage(depth, one_way_bytes=depth * nbytes, distance=1),
    ]


def _rabenseifner(nbytes: int, power: int, rest: int, doublings: int) -> list[Stage]:
    inner: list[Stage] = []
    for i in range(doublings):
        part = nbytes / 2 ** (i + 1)
        inner.append(Stage(1, exchange_bytes=part, reduce_bytes=part, distance=2**i))
    for i in reversed(range(doublings)):
        inner.append(Stage(1, exchange_bytes=nbytes / 2 ** (i + 1), distance=2**i))
    if not rest:
        return inner
    # The first 2r ranks pair up: halves both ways, the reduced half one way, the whole result at the end.
    half = nbytes / 2
    return [
        Stage(1, exchange_bytes=half, reduce_bytes=half, distance=1),
        Stage(1, one_way_bytes=half, distance=1),
        *inner,
        Stage(1, one_way_bytes=float(nbytes), distance=1),
    ]


def control_rounds(ranks: int) -> int:
    """Rounds of a small allreduce (Horovod's bit vector): recursive doubling, reference 8.3's L."""
    if ranks == 1:
        return 0
    return int(math.log2(ranks)) + (0 if ranks & (ranks - 1) == 0 else 2)
