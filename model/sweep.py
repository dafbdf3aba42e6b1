"""Large sweeps: settings in chunks, each chunk's rows in a Parquet file of its own as soon as it is done.

A sweep folder holds ``sweep.json`` (what was asked) and ``part-NNNNN.parquet``. A file appears whole or not at
all, so a stopped sweep resumes with the chunks that are missing; a folder of another question is refused.
With Dask the chunks run on its workers, local processes or a cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..answer import write_text_whole
from ..errors import UserError
from .axes import Setting
from .whatif import Grid

FORMAT_VERSION = 1
CHUNK = 16
Progress = Callable[[int], None]


def chunk_rows(grid: Grid, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """Rows of some settings: the setting's fields, ``chosen``, ``bottleneck`` and the prediction's numbers."""
    rows = []
    for setting in settings:
        answer = grid.answer(setting)
        for row in answer.rows():
            chosen = row["aux"] == answer.choice.aux
            rows.append({**setting.to_json(), **row, "chosen": chosen, "bottleneck": answer.bottleneck})
    return rows


def run_sweep(grid: Grid, folder: Path, *, dask: str | None = None, done: Progress = lambda _: None) -> Path:
    """Run `grid` into `folder`, or what is missing there; `done` is told the scenarios of each finished chunk.

    `dask` is a scheduler's address or ``"local"``; None runs in this process. Raises UserError when the folder
    belongs to another question or cannot be written, or Dask is missing or unreachable.
    """
    _claim(grid, folder)
    chunks = [list(grid.settings[i : i + CHUNK]) for i in range(0, len(grid.settings), CHUNK)]
    missing = []
    for number, chunk in enumerate(chunks):
        if (folder / _part(number)).exists():
            done(len(chunk) * len(grid.aux))
        else:
            missing.append((number, chunk))
    for number, rows in _computed(grid, missing, dask):
        _write_part(folder, number, rows)
        done(len(chunks[number]) * len(grid.aux))
    return folder


def read_sweep(folder: Path) -> pd.DataFrame:
    """All finished rows of a sweep, in the order of its settings."""
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise UserError(f"{folder} holds no finished part of a sweep")
    frames: list[pd.DataFrame] = [pq.read_table(part).to_pandas() for part in parts]
    return pd.concat(frames, ignore_index=True)


def _computed(
    grid: Grid, missing: list[tuple[int, list[Setting]]], dask: str | None
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    if dask is None:
        for number, chunk in missing:
            yield number, chunk_rows(grid, chunk)
        return
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise UserError(
            "Dask is not installed: pip install 'vsketchdlc[sweep]', or leave --dask out"
        ) from None
    try:
        if dask == "local":
            workers = max(1, len(os.sched_getaffinity(0)))
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        else:
            cluster = dask
        client = Client(cluster, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(f"no Dask scheduler at {dask}: {error}; start one, or use --dask local") from None
    try:
        shared = client.scatter(grid, broadcast=True)
        futures = {client.submit(chunk_rows, shared, chunk, pure=False): number for number, chunk in missing}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        client.close()
        if dask == "local":
            cluster.close()


def _part(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _write_part(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    fresh = folder / f".{_part(number)}.{os.getpid()}"
    try:
        pq.write_table(pa.Table.from_pylist(rows), fresh, compression="zstd")
        fresh.replace(folder / _part(number))
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror}; free some space, then run the same command again"
        ) from None
    finally:
        fresh.unlink(missing_ok=True)


def _claim(grid: Grid, folder: Path) -> None:
    """Make the folder this question's, or see that it already is."""
    asked = {
        "format_version": FORMAT_VERSION,
        "question": _question(grid),
        "settings": len(grid.settings),
        "aux": list(grid.aux),
        "workload": grid.workload.name,
    }
    note = folder / "sweep.json"
    if note.exists():
        try:
            before = json.loads(note.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{note} is not readable ({error}); remove the folder or choose another"
            ) from None
        if before != asked:
            raise UserError(f"{folder} holds another sweep ({before.get('workload')}); choose another folder")
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and is no sweep; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}; choose another place") from None
    write_text_whole(note, json.dumps(asked, indent=1) + "\n")


def _question(grid: Grid) -> str:
    """A fingerprint of everything that decides the answers."""
    data = json.dumps(
        [
            grid.workload.to_json(),
            {name: work.to_json() for name, work in grid.others.items()},
            grid.calibration.to_json(),
            list(grid.aux),
            [setting.to_json() for setting in grid.settings],
            grid.min_gain,
            grid.intervals,
        ],
        sort_keys=True,
    )
    return hashlib.sha256(data.encode()).hexdigest()
