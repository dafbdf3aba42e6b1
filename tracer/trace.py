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

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import UserError
from .schema import EVENTS, FORMAT_VERSION, SAMPLES

_SQL_TYPES = {pa.int32(): "integer", pa.int64(): "bigint", pa.string(): "varchar", pa.float64(): "double"}


@dataclass(frozen=True)
class TensorInfo:
    """One gradient as the job knows it: Horovod's name, the parameter and layer behind it, its size."""

    name: str
    parameter: str | None
    layer: str | None
    bytes: int
    dtype: str
    index: int


@dataclass
class HostInfo:
    """One machine: what it is called, its cores usable by the job, its clock against the reference host.

    ``clock_offset_ns`` is added to the host's stamps to get reference time; None where it is unknown.
    ``clock_uncertainty_ns`` is the half-width of the interval that holds the true offset.
    A clock that runs fast or slow has a ``clock_drift`` (ns a ns): reference time is
    ``t + clock_offset_ns + clock_drift * (t - clock_middle_ns)``.
    Hosts with the same ``machine`` (the kernel's boot identity) are containers of one machine and share its cores.
    """

    name: str
    cores: int | None = None
    ranks: list[int] = field(default_factory=list)
    clock_offset_ns: int | None = 0
    clock_uncertainty_ns: int | None = None
    clock_drift: float = 0.0
    clock_middle_ns: int = 0
    machine: str | None = None


@dataclass
class TraceMeta:
    """What a trace says about its run besides events.

    ``source`` is ``recorded``, ``simulated`` or ``imported:<format>``; ``settings`` holds Horovod's and the
    lanes' knobs as the ranks saw them (``aux``, ``fusion_threshold_bytes``, ``cycle_time_s``, ``mpi``...);
    ``missing_ranks`` are ranks that were announced but left no readable log; ``lost_events`` counts events
    dropped at the size limit; ``notes`` are sentences for the user (repairs, assumptions, lab limits).
    """

    source: str = "recorded"
    command: list[str] = field(default_factory=list)
    hosts: list[HostInfo] = field(default_factory=list)
    ranks: int = 0
    batch_per_rank: int | None = None
    tensors: list[TensorInfo] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    lost_events: int = 0
    missing_ranks: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    format_version: int = FORMAT_VERSION


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
        if not folder.exists():
            raise UserError(
                f"no trace at {folder}: record one with 'vsketchdlc trace -o {folder} -- mpirun ...'"
            )
        meta_file = folder / "meta.json"
        try:
            data = json.loads(meta_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{folder} is not a readable trace ({meta_file.name}: {error}); record it again"
            ) from None
        trace = cls(folder, _meta_from_json(data, folder))
        trace._check_tables()
        return trace

    def _check_tables(self) -> None:
        for file in self._files("events") + self._files("samples"):
            try:
                pq.read_schema(file)
            except (OSError, pa.ArrowException) as error:
                raise UserError(
                    f"{self.path} is damaged ({file.name}: {str(error).splitlines()[0]}); record it again"
                ) from None
        if not self._files("events"):
            raise UserError(f"{self.path} holds no events; record it again")

    def _files(self, table: str) -> list[Path]:
        return sorted((self.path / table).rglob("*.parquet"))

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
        with duckdb.connect() as connection:
            connection.execute("set threads to 2")
            self._define_tables(connection)
            yield connection

    def events(
        self, *, kinds: Iterable[str] | None = None, columns: Iterable[str] | None = None
    ) -> pd.DataFrame:
        """Events as a DataFrame, ordered by start; `kinds` and `columns` keep it small."""
        chosen = ", ".join(columns) if columns is not None else ", ".join(EVENTS.names)
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

    def stragglers(self) -> pd.DataFrame:
        """Which rank is late, and who waits for it? See `analysis.stragglers`."""
        from .analysis.stragglers import stragglers

        return self._answer(stragglers)

    def flows(self) -> pd.DataFrame:
        """How much goes over each TCP flow, how fast, how late? See `analysis.flows`."""
        from .analysis.flows import flows

        return self._answer(flows)

    def cores(self) -> pd.DataFrame:
        """Which thread uses a core, which waits for one? See `analysis.cores`."""
        from .analysis.cores import cores

        return self._answer(cores)

    def verdict(self) -> str:
        """What is the bottleneck, in one sentence? See `analysis.verdict`."""
        from .analysis.verdict import verdict

        return verdict(self)

    def _define_tables(self, connection: duckdb.DuckDBPyConnection) -> None:
        clocks = [
            f"({_quoted(host.name)}, {host.clock_offset_ns or 0}, {host.clock_drift!r}::double, {host.clock_middle_ns})"
            for host in self.meta.hosts
        ]
        rows = ", ".join(clocks) or "('', 0, 0.0::double, 0)"
        event_files = self._files("events")
        recorded = set(pq.read_schema(event_files[0]).names)  # an older recorder knew fewer columns
        files = ", ".join(_quoted(str(file)) for file in event_files)
        shifted = ", ".join(
            f"e.{name} + coalesce(c.offset_ns + round(c.drift * (e.{name} - c.middle_ns))::bigint, 0) as {name}"
            if name.startswith("t_")
            else f"e.{name}"
            if name in recorded
            else f"null::{_SQL_TYPES[EVENTS.field(name).type]} as {name}"
            for name in EVENTS.names
        )
        connection.execute(
            f"create view events as select {shifted} from read_parquet([{files}], hive_partitioning = false) e "
            f"left join (values {rows}) c(host, offset_ns, drift, middle_ns) on e.host = c.host"
        )
        sample_files = ", ".join(_quoted(str(file)) for file in self._files("samples"))
        if sample_files:
            connection.execute(f"create view samples as select * from read_parquet([{sample_files}])")
        else:
            connection.execute(
                "create table samples (t_ns bigint, process bigint, subject varchar, name varchar, value double)"
            )


def batches(connection: duckdb.DuckDBPyConnection, sql: str, rows: int = 65536) -> Iterator[pa.RecordBatch]:
    """The answer of `sql` piece by piece, `rows` rows at most in each, so that it need not fit in memory."""
    answer: Any = connection.sql(sql)
    newer = hasattr(answer, "to_arrow_reader")  # duckdb 2
    yield from answer.to_arrow_reader(rows) if newer else answer.fetch_arrow_reader(rows)


def check_target(target: Path) -> None:
    """Refuse to write a trace over something that is none.

    Raises UserError; better before a run than after it.
    """
    if target.is_file() or (
        target.is_dir() and not (target / "meta.json").exists() and any(target.iterdir())
    ):
        raise UserError(f"{target} exists and is not a trace; choose another output folder")


def write_trace(
    path: str | Path, meta: TraceMeta, events: pa.Table | pd.DataFrame, samples: Any = None
) -> Trace:
    """Write a whole trace to folder `path` and open it; an older trace there is replaced only at the end.

    `events` and `samples` have the columns of `schema` (missing ones become null). Raises UserError when
    `path` exists and is not a trace, or cannot be written.
    """
    target = Path(path)
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; choose another output folder") from None
    try:
        fresh.chmod(0o755)
        _write_events(fresh / "events", _as_table(events, EVENTS))
        if samples is not None:
            (fresh / "samples").mkdir()
            pq.write_table(_as_table(samples, SAMPLES), fresh / "samples" / "part-0.parquet")
        (fresh / "meta.json").write_text(json.dumps(asdict(meta), indent=1), encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        fresh.replace(target)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror}; free some space or choose another folder"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Trace.open(target)


def _as_table(data: Any, schema: pa.Schema) -> pa.Table:
    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    columns = [
        table.column(item.name).cast(item.type)
        if item.name in table.column_names
        else pa.nulls(len(table), item.type)
        for item in schema
    ]
    return pa.table(columns, schema=schema)


def _write_events(folder: Path, table: pa.Table) -> None:
    ranks = table.column("rank").unique().to_pylist() or [None]
    for rank in ranks:
        mask = pc.is_null(table["rank"]) if rank is None else pc.equal(table["rank"], rank)
        place = folder / f"rank={'none' if rank is None else rank}"
        place.mkdir(parents=True)
        pq.write_table(table.filter(mask), place / "part-0.parquet", compression="zstd")


def _meta_from_json(data: Any, folder: Path) -> TraceMeta:
    version = data.get("format_version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise UserError(f"{folder}/meta.json has no format_version; it is not a trace of vsketchdlc")
    if version > FORMAT_VERSION:
        raise UserError(
            f"{folder} has trace format {version}, this vsketchdlc reads up to {FORMAT_VERSION}; install a newer one"
        )
    known = {key: value for key, value in data.items() if key in TraceMeta.__dataclass_fields__}
    try:
        known["hosts"] = [HostInfo(**host) for host in known.get("hosts", [])]
        known["tensors"] = [TensorInfo(**tensor) for tensor in known.get("tensors", [])]
        return TraceMeta(**known)
    except TypeError as error:
        raise UserError(f"{folder}/meta.json is damaged ({error}); record the trace again") from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
