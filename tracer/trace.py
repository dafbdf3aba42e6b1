"""A recorded (or simulated) run on disk: ``meta.json`` beside Parquet tables of events and samples.

::

    trace/
      meta.json                      format_version, source, hosts, ranks, tensors, losses, clock offsets
      events/rank=0/part-0.parquet   one folder a rank; ``rank=none`` holds lanes and servers
      samples/part-0.parquet

A Trace is lazy: the tables stay in the files, a query reads the columns it needs, only its answer becomes a
DataFrame. Parquet keeps a run of a million events at a few bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from ..errors import UserError
from .meta import HostInfo as HostInfo
from .meta import TensorInfo as TensorInfo
from .meta import TraceMeta as TraceMeta
from .meta import read_meta
from .schema import EVENTS
from .tables import check_name, check_tables, open_tables, write_tables
from .tables import check_target as check_target


class Trace:
    """A trace opened for reading.

    >>> trace = Trace.open("trace/")                                            # doctest: +SKIP
    >>> trace.query("select kind, count(*) as n from events group by kind")     # doctest: +SKIP
    """

    def __init__(self, path: Path, meta: TraceMeta) -> None:
        self.path = path
        self.meta = meta
        self._answers: dict[str, pd.DataFrame] = {}

    @classmethod
    def open(cls, path: str | Path) -> Trace:
        """Open the trace in folder `path`.

        Raises UserError when it is missing, damaged, or of a newer format.
        """
        folder = Path(path)
        check_name(folder)
        try:
            there = folder.exists()
        except OSError as error:
            raise UserError(f"cannot read {folder}: {error.strerror}; check the name") from None
        if not there:
            raise UserError(
                f"no trace at {folder}: record one with 'vsketchdlc trace -o {folder} -- mpirun ...'"
            )
        meta = read_meta(folder)
        check_tables(folder)
        _check_ranks(folder, meta)
        return cls(folder, meta)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> pd.DataFrame:
        """Answer of `sql` over the tables ``events`` and ``samples`` (see `schema`), as a DataFrame.

        Stamps in ``events`` are per-host unless the host's clock offset is known, then reference time.
        """
        with self.connect() as connection:
            return connection.execute(sql, list(parameters)).df()

    @contextmanager
    def connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A DuckDB connection with the views ``events`` and ``samples`` of `query`, for several questions in a row.

        See `batches` for answers that are too large for one DataFrame.
        """
        with open_tables(self.path, self.meta.hosts) as connection:
            yield connection

    def events(
        self, *, kinds: Iterable[str] | None = None, columns: Iterable[str] | None = None
    ) -> pd.DataFrame:
        """Events as a DataFrame, ordered by start; `kinds` and `columns` keep it small."""
        chosen = ", ".join(f'"{name}"' for name in (EVENTS.names if columns is None else columns))
        where, values = "", []
        if kinds is not None:
            values = [str(kind) for kind in kinds]
            where = f"where kind in ({', '.join('?' * len(values))})"
        return self.query(f"select {chosen} from events {where} order by t_start_ns, t_end_ns", values)

    def samples(self) -> pd.DataFrame:
        """All samples as a DataFrame, ordered by time."""
        return self.query("select * from samples order by t_ns")

    def step_times(self) -> pd.DataFrame:
        """Step boundaries: columns rank, step, t_start_ns, t_end_ns; one row a rank and whole step.

        A step lasts from the start of its forward pass to the start of the next one (reference 8.8), so the
        last recorded step has no row.
        """
        return self.query(
            """
            with starts as (
                select rank, step, min(t_start_ns) as t_start_ns from events
                where kind = 'forward' and step >= 0 group by rank, step
            ), pairs as (
                select rank, step, t_start_ns,
                       lead(t_start_ns) over (partition by rank order by step) as t_end_ns,
                       lead(step) over (partition by rank order by step) as next_step
                from starts
            )
            select rank, step, t_start_ns, t_end_ns from pairs where next_step = step + 1 order by rank, step
            """
        )

    def _answer(self, question: Callable[[Trace], pd.DataFrame]) -> pd.DataFrame:
        """The answer to `question`, which is asked only once: the files of a trace do not change."""
        if question.__name__ not in self._answers:
            self._answers[question.__name__] = question(self)
        return self._answers[question.__name__].copy()

    def step_breakdown(self) -> pd.DataFrame:
        """Where does each step's time go? See `analysis.steps`."""
        from .analysis.steps import step_breakdown

        return self._answer(step_breakdown)

    def exposed_communication(self) -> pd.DataFrame:
        """How much communication is not hidden behind backward? See `analysis.steps`."""
        from .analysis.steps import exposed_communication

        return self._answer(exposed_communication)

    def layers(self) -> pd.DataFrame:
        """When is each layer ready, what does it wait for? See `analysis.layers`."""
        from .analysis.layers import layers

        return self._answer(layers)

    def tensors(self) -> pd.DataFrame:
        """When is each gradient ready, what does it wait for? See `analysis.layers`."""
        from .analysis.layers import tensors

        return self._answer(tensors)

    def critical_path(self) -> pd.DataFrame:
        """Which chain of waits made each step as long as it was? See `analysis.critical`."""
        from .analysis.critical import critical_path

        return self._answer(critical_path)

    def stragglers(self) -> pd.DataFrame:
        """Which rank is late, and who waits for it? See `analysis.stragglers`."""
        from .analysis.stragglers import stragglers

        return self._answer(stragglers)

    def flows(self) -> pd.DataFrame:
        """How much goes over each TCP flow, how fast, how late? See `analysis.flows`."""
        from .analysis.flows import flows

        return self._answer(flows)

    def kvstore(self) -> pd.DataFrame:
        """How long do requests to the parameter servers take, and where? See `analysis.kvstore`."""
        from .analysis.kvstore import kvstore

        return self._answer(kvstore)

    def cores(self) -> pd.DataFrame:
        """Which thread uses a core, which waits for one? See `analysis.cores`."""
        from .analysis.cores import cores

        return self._answer(cores)

    def verdict(self) -> str:
        """What is the bottleneck, in one sentence? See `analysis.verdict`."""
        from .analysis.verdict import verdict

        return verdict(self)


def _check_ranks(folder: Path, meta: TraceMeta) -> None:
    """Raise UserError when a recorded rank's table was lost after the recording: half a run answers wrongly."""
    if meta.source != "recorded":
        return
    wanted = {rank for host in meta.hosts for rank in host.ranks} - set(meta.missing_ranks)
    for rank in sorted(wanted):
        if not any(place.is_file() for place in (folder / "events" / f"rank={rank}").glob("*.parquet")):
            raise UserError(
                f"{folder} has lost the events of rank {rank}: copy the whole folder again, or record it again"
            )


def batches(connection: duckdb.DuckDBPyConnection, sql: str, rows: int = 65536) -> Iterator[pa.RecordBatch]:
    """The answer of `sql` piece by piece, `rows` rows at most in each, so that it need not fit in memory."""
    answer: Any = connection.sql(sql)
    newer = hasattr(answer, "to_arrow_reader")  # duckdb 2
    reader = answer.to_arrow_reader(rows) if newer else answer.fetch_arrow_reader(rows)
    while True:
        try:
            piece = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as error:  # how Arrow passes on what DuckDB found
            raise duckdb.IOException(str(error)) from None
        yield piece


def write_trace(
    path: str | Path, meta: TraceMeta, events: pa.Table | pd.DataFrame, samples: Any = None
) -> Trace:
    """Write a whole trace to folder `path` and open it; an older trace there is replaced only at the end.

    `events` and `samples` have the columns of `schema` (missing ones become null). Raises UserError when
    `path` exists and is not a trace, or cannot be written.
    """
    write_tables(path, meta, events, samples)
    return Trace.open(path)
