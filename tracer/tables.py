"""The files of a trace: Parquet tables of events and samples, as views that DuckDB queries, and how they are written."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import UserError
from .meta import HostInfo, TraceMeta
from .schema import EVENTS, SAMPLES

_SQL_TYPES = {pa.int32(): "integer", pa.int64(): "bigint", pa.string(): "varchar", pa.float64(): "double"}
_NEEDED = {"events": ("kind", "process", "t_start_ns", "t_end_ns"), "samples": ("t_ns", "name", "value")}
_MISTAKES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
"""What a wrong query raises; every other error of DuckDB comes from the files or the machine."""


def files_of(folder: Path, table: str) -> list[Path]:
    """The Parquet files of ``events`` or ``samples``."""
    return sorted(file for file in (folder / table).rglob("*.parquet") if file.is_file())


def check_tables(folder: Path) -> None:
    """Look at the head of every file.

    Raises UserError when there are no events, or a file is no Parquet or has not the columns of `schema`.
    """
    for table, schema in (("events", EVENTS), ("samples", SAMPLES)):
        for file in files_of(folder, table):
            try:
                found = pq.read_schema(file)
            except (OSError, pa.ArrowException) as error:
                raise damaged(folder, f"{file.name}: {error}") from None
            for name in found.names:
                if name in schema.names and not _alike(found.field(name).type, schema.field(name).type):
                    raise damaged(folder, f"{file.name}: column {name} is {found.field(name).type}")
            missing = [name for name in _NEEDED[table] if name not in found.names]
            if missing:
                raise damaged(folder, f"{file.name}: no column {missing[0]}")
    if not files_of(folder, "events"):
        raise UserError(f"{folder} holds no events; record it again")


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    plain = found.value_type if pa.types.is_dictionary(found) else found
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))
    return bool(plain == wanted)


def damaged(folder: Path, reason: object) -> UserError:
    """The error for a trace whose files cannot be read."""
    return UserError(f"{folder} is damaged ({str(reason).splitlines()[0]}); record it again")


@contextmanager
def open_tables(folder: Path, hosts: Iterable[HostInfo]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with the views ``events``, on the reference host's clock, and ``samples``.

    What does not fit in memory goes to a folder of its own below the system's temporary folder. Inside the ``with``,
    what DuckDB says about damaged files becomes a UserError.
    """
    with (
        tempfile.TemporaryDirectory(prefix="vsketchdlc-", ignore_cleanup_errors=True) as spill,
        duckdb.connect() as connection,
    ):
        try:
            connection.execute("set threads to 2")
            connection.execute(f"set temp_directory = {_quoted(spill)}")
            _define_events(connection, folder, hosts)
            _define_samples(connection, folder)
            yield connection
        except _MISTAKES:
            raise
        except duckdb.OutOfMemoryException as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"{folder} needs more memory than there is ({reason}); ask for fewer steps"
            ) from None
        except duckdb.Error as error:
            raise damaged(folder, error) from None


def _define_events(connection: duckdb.DuckDBPyConnection, folder: Path, hosts: Iterable[HostInfo]) -> None:
    clocks = {
        host.name: f"({_quoted(host.name)}, {host.clock_offset_ns or 0}, {float(host.clock_drift)!r}::double, "
        f"{host.clock_middle_ns})"
        for host in hosts
    }
    rows = ", ".join(clocks.values()) or "('', 0, 0.0::double, 0)"
    source, recorded = _source(folder, "events")
    columns = []
    for name in EVENTS.names:
        kind = _SQL_TYPES[EVENTS.field(name).type]
        if name not in recorded:  # an older recorder knew fewer columns
            columns.append(f'null::{kind} as "{name}"')
        elif name.startswith("t_"):
            drift = f"round(c.drift * (e.{name} - c.middle_ns))::bigint"
            columns.append(f"e.{name} + coalesce(c.offset_ns + {drift}, 0) as {name}")
        else:
            columns.append(f'e."{name}"')
    connection.execute(
        f"create view events as select {', '.join(columns)} from {source} e "
        f"left join (values {rows}) c(host, offset_ns, drift, middle_ns) on e.host = c.host"
    )


def _define_samples(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    if not files_of(folder, "samples"):
        columns = ", ".join(f'"{item.name}" {_SQL_TYPES[item.type]}' for item in SAMPLES)
        connection.execute(f"create table samples ({columns})")
        return
    source, recorded = _source(folder, "samples")
    columns = ", ".join(
        f'"{item.name}"' if item.name in recorded else f'null::{_SQL_TYPES[item.type]} as "{item.name}"'
        for item in SAMPLES
    )
    connection.execute(f"create view samples as select {columns} from {source}")


def _source(folder: Path, table: str) -> tuple[str, set[str]]:
    """SQL that reads all files of a table, and the columns that any of them has."""
    files = files_of(folder, table)
    try:
        schemas = [pq.read_schema(file) for file in files]
    except (OSError, pa.ArrowException) as error:
        raise damaged(folder, error) from None
    recorded = {name for schema in schemas for name in schema.names}
    alike = "" if all(set(schema.names) == recorded for schema in schemas) else ", union_by_name = true"
    listed = ", ".join(_quoted(_literal(file)) for file in files)
    return f"read_parquet([{listed}], hive_partitioning = false{alike})", recorded


def _literal(file: Path) -> str:
    """The path of `file` as a pattern that matches only itself."""
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in str(file.absolute()))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def check_name(folder: Path) -> None:
    """Raise UserError for a name that Parquet's readers cannot take: bytes that are no UTF-8."""
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError:
        raise UserError(f"the name of {folder} has bytes that are no UTF-8: rename that folder") from None


def check_target(target: Path) -> None:
    """Refuse to write a trace over something that is none.

    Raises UserError; better before a run than after it.
    """
    check_name(target)
    try:
        other = target.exists() and not (
            target.is_dir() and ((target / "meta.json").exists() or not any(target.iterdir()))
        )
        here = target.exists() and target.samefile(Path.cwd())
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; choose another output folder") from None
    if other:
        raise UserError(f"{target} exists and is not a trace; choose another output folder")
    if here:
        raise UserError(f"{target} is the folder you are in; name a new one in it")


def write_tables(
    path: str | Path, meta: TraceMeta, events: pa.Table | pd.DataFrame, samples: Any = None
) -> None:
    """Write a whole trace to folder `path`; an older trace there is replaced only at the end.

    `events` and `samples` have the columns of `schema` (missing ones become null). Raises UserError when
    `path` exists and is not a trace, or cannot be written.
    """
    target = Path(path).absolute()
    check_target(target)
    target = target.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=".vsketchdlc."))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another output folder") from None
    try:
        trace = fresh / "new"
        # A rank that did nothing while the recording was on has an empty table: it is not one that was lost.
        quiet = {rank for host in meta.hosts for rank in host.ranks} - set(meta.missing_ranks)
        _write_events(trace / "events", _as_table(events, EVENTS), quiet)
        if samples is not None:
            (trace / "samples").mkdir()
            pq.write_table(_as_table(samples, SAMPLES), trace / "samples" / "part-0.parquet")
        (trace / "meta.json").write_text(json.dumps(asdict(meta), indent=1), encoding="utf-8")
        if target.exists():
            target.replace(fresh / "old")
        trace.replace(target)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; free some space or choose another folder"
        ) from None
    finally:
        if (fresh / "old").exists() and not target.exists():
            (fresh / "old").replace(target)
        shutil.rmtree(fresh, ignore_errors=True)


def _as_table(data: Any, schema: pa.Schema) -> pa.Table:
    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    columns = [
        table.column(item.name).cast(item.type)
        if item.name in table.column_names
        else pa.nulls(len(table), item.type)
        for item in schema
    ]
    return pa.table(columns, schema=schema)


# Stamps differ from row to row: their differences are short, a dictionary of them is not.
_STAMPS = ("t_start_ns", "t_end_ns", "offset")
_ENCODING: dict[str, Any] = {
    "use_dictionary": [name for name in EVENTS.names if name not in _STAMPS],
    "column_encoding": dict.fromkeys(_STAMPS, "DELTA_BINARY_PACKED"),
}


def _write_events(folder: Path, table: pa.Table, expected: set[int]) -> None:
    found = table.column("rank").unique().to_pylist()
    ranks = [*found, *sorted(expected - set(found))] or [None]
    for rank in ranks:
        mask = pc.is_null(table["rank"]) if rank is None else pc.equal(table["rank"], rank)
        place = folder / f"rank={'none' if rank is None else rank}"
        place.mkdir(parents=True)
        part = table if len(ranks) == 1 else table.filter(mask)
        pq.write_table(part, place / "part-0.parquet", compression="zstd", compression_level=1, **_ENCODING)
