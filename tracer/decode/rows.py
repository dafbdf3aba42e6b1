"""Event rows as columns of numbers, before they become the table of a Trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..schema import EVENTS, Kind
from ..trace import TensorInfo

Integers = npt.NDArray[np.int64]
NULL = -(2**31)

#: Number of a kind, track or peer in a column; text is only made when the table is.
KINDS = [str(kind) for kind in Kind]
KIND_NUMBER = {kind: number for number, kind in enumerate(Kind)}

TRACKS = ("step", "python", "engine", "horovod", "tensors", "tcp", "kvstore", "lane")
STEP, PYTHON, ENGINE, HOROVOD, TENSORS, TCP, KVSTORE, LANE = range(8)
#: A peer is a rank, or from here on a server's number.
SERVER_PEER = 1 << 20


@dataclass
class Rows:
    """Rows of one process; every column has the same length, `NULL` stands for an empty cell."""

    step: Integers
    kind: Integers
    track: Integers
    tensor: Integers
    bucket: Integers
    bytes: Integers
    peer: Integers
    flow: Integers
    offset: Integers
    start_ns: Integers
    end_ns: Integers

    def __len__(self) -> int:
        return len(self.start_ns)


def rows(
    kind: Kind,
    track: int,
    start_ns: Integers,
    end_ns: Integers,
    *,
    step: Integers | int = NULL,
    tensor: Integers | int = NULL,
    bucket: Integers | int = NULL,
    bytes_: Integers | int = NULL,
    peer: Integers | int = NULL,
    flow: Integers | int = NULL,
    offset: Integers | int = NULL,
) -> Rows:
    """Rows of one kind; a scalar fills its column. An interval never ends before it starts."""
    count = len(start_ns)

    def column(value: Integers | int) -> Integers:
        return np.broadcast_to(np.asarray(value, dtype=np.int64), (count,))

    return Rows(
        column(step),
        column(KIND_NUMBER[kind]),
        column(track),
        column(tensor),
        column(bucket),
        column(bytes_),
        column(peer),
        column(flow),
        column(offset),
        start_ns,
        np.maximum(start_ns, end_ns),
    )


def concatenated(parts: Sequence[Rows]) -> Rows:
    """All `parts`, one after the other."""
    names = Rows.__dataclass_fields__
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Rows(**columns)


@dataclass
class Tensors:
    """The tensors of a recording, numbered; the same name is the same tensor on every rank."""

    infos: list[TensorInfo] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, info: TensorInfo) -> int:
        """Number of the tensor called `info.name`, new or known."""
        known = self._numbers.get(info.name)
        if known is None:
            known = self._numbers[info.name] = len(self.infos)
            self.infos.append(info)
        return known


def as_table(
    data: Rows,
    tensors: Tensors,
    flows: list[str],
    *,
    rank: int | None,
    host: str,
    process: int,
    lane: int | None = None,
) -> pa.Table:
    """`data` as an arrow table with the columns of the Trace's events, ordered by start."""
    order = np.argsort(data.start_ns, kind="stable")
    count = len(order)

    def numbers(values: Integers, kind: pa.DataType) -> pa.Array:
        taken = values[order]
        return pa.array(taken, mask=taken == NULL).cast(kind)

    def words(values: Integers, dictionary: list[str | None]) -> pa.Array:
        taken = values[order]
        places = pa.array(np.where(taken == NULL, 0, taken).astype(np.int32), mask=taken == NULL)
        return pa.DictionaryArray.from_arrays(places, pa.array(dictionary or [""], pa.string())).cast(
            pa.string()
        )

    columns = {
        "step": numbers(data.step, pa.int32()),
        "rank": pa.nulls(count, pa.int32())
        if rank is None
        else pa.array(np.full(count, rank, dtype=np.int32)),
        "host": words(np.zeros(count, dtype=np.int64), [host]),
        "process": pa.array(np.full(count, process, dtype=np.int64)),
        "track": words(data.track, list(TRACKS)),
        "kind": words(data.kind, list(KINDS)),
        "tensor": words(data.tensor, [info.name for info in tensors.infos]),
        "layer": words(data.tensor, [info.layer for info in tensors.infos]),
        "bucket": numbers(data.bucket, pa.int32()),
        "bytes": numbers(data.bytes, pa.int64()),
        "peer": _peers(data.peer[order]),
        "flow": words(data.flow, [*flows]),
        "lane": pa.array([lane] * count, pa.int32()),
        "t_start_ns": pa.array(data.start_ns[order]),
        "t_end_ns": pa.array(data.end_ns[order]),
        "offset": numbers(data.offset, pa.int64()),
    }
    return pa.table([columns[name] for name in EVENTS.names], schema=EVENTS)


def _peers(peers: Integers) -> pa.Array:
    known = np.unique(peers[peers != NULL])
    places = np.searchsorted(known, peers)
    mask = peers == NULL
    dictionary = [
        f"rank {number}" if number < SERVER_PEER else f"server {number - SERVER_PEER}" for number in known
    ] or [""]
    indices = pa.array(np.where(mask, 0, places).astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, pa.array(dictionary, pa.string())).cast(pa.string())
