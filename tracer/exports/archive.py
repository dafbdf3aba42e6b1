"""A trace as a Perfetto archive: one file a rank on its own host's clock, and a manifest that relates the clocks.

The archive is a ZIP that Perfetto (from mid 2026) opens as one trace. Its manifest
(https://perfetto.dev/docs/reference/perfetto-manifest) names the machine of each file and says, once for each
host, how far its clock is from the reference host's: the reference reads ``offset_ns`` more at the same instant.
Lanes and servers are in a file of their own for each host. Older viewers ignore the manifest; give them the
single file of ``--format perfetto``, which is aligned already.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from ...errors import UserError
from ..trace import Trace
from .packets import Drawing, write_packets
from .perfetto import COSTS, DEFAULT_LIMIT_BYTES
from .picture import CounterPoint, Picture, Slices, open_picture
from .timeline import Process
from .whole_file import WrittenFile, export_file
from .window import choose, told

MANIFEST = "perfetto_manifest.json"
CLOCK = "BOOTTIME"
"""What Perfetto takes stamps for that name no clock; ours are CLOCK_MONOTONIC, without the time asleep."""

_Drawn = TypeVar("_Drawn", Slices, CounterPoint)


@dataclass(frozen=True)
class Member:
    """One file of the archive and the processes in it, all of one host."""

    name: str
    host: str | None
    processes: list[Process]


def export_archive(
    trace: Trace,
    path: Path,
    *,
    limit_bytes: float = DEFAULT_LIMIT_BYTES,
    steps: tuple[int, int] | None = None,
    hosts: Collection[str | None] | None = None,
) -> WrittenFile:
    """Write `trace` to the archive `path`; parameters and errors as for `chrome.export_chrome`."""
    if path.suffix == ".gz":
        raise UserError(f"{path} would be compressed twice; name the archive .zip")
    with open_picture(trace, hosts) as picture:
        selection = choose(picture, COSTS, limit_bytes, steps)
        picture.select(selection)
        if picture.is_empty():
            raise UserError(f"{trace.path} has no events in the chosen steps and hosts; choose others")
        picture.notes = told(picture, selection, limit_bytes, steps)
        members = members_of(picture)
        with export_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr(_entry(MANIFEST), json.dumps(manifest(members, trace.path.name), indent=1))
            slices, size = _write_members(archive, picture, members)
    return WrittenFile(path, slices, size, list(picture.notes))


def members_of(picture: Picture) -> list[Member]:
    """The files of the archive, in the order of their processes; those with nothing to draw are left out."""
    drawn = picture.drawn_pids()
    members: list[Member] = []
    others: dict[str | None, Member] = {}
    for process in sorted(picture.processes, key=lambda process: process.pid):
        if process.pid not in drawn:
            continue
        if process.rank is not None:
            twice = any(member.name == f"rank{process.rank}.pftrace" for member in members)
            name = f"rank{process.rank}{f'-{process.pid}' if twice else ''}.pftrace"
            members.append(Member(name, process.host, [process]))
        elif process.host in others:
            others[process.host].processes.append(process)
        else:
            number = len(others)
            others[process.host] = Member(f"host{number}-others.pftrace", process.host, [process])
            members.append(others[process.host])
    return members


def manifest(members: list[Member], run: str) -> dict[str, Any]:
    """The manifest: machine of each file, and for each further host how its clock relates to the first one's."""
    files: list[dict[str, Any]] = []
    reference = members[0]
    placed = {reference.host}
    for member in members:
        entry: dict[str, Any] = {"path": member.name}
        if member.host:
            entry["machine"] = {"name": member.host}
        if member.host not in placed:
            placed.add(member.host)
            ahead_ns = member.processes[0].clock_offset_ns - reference.processes[0].clock_offset_ns
            entry["clocks"] = {
                "clock": CLOCK,
                "sync_to": {"file": reference.name, "clock": CLOCK},
                "offset_ns": ahead_ns,
            }
        files.append(entry)
    return {
        "perfetto_manifest": {
            "version": 1,
            "trace_time": {"clock": CLOCK, "file": reference.name},
            "files": files,
            "attributes": {"vsketchdlc.trace": run},
        }
    }


def _write_members(archive: zipfile.ZipFile, picture: Picture, members: list[Member]) -> tuple[int, int]:
    points = picture.counters(ahead=True)
    slices = picture.slices()
    held_slices: list[Slices] = []
    held_points: list[CounterPoint] = []
    slice_count = size = 0
    for member in members:
        pids = {process.pid for process in member.processes}
        shift_ns = picture.base_ns - member.processes[0].clock_offset_ns
        if shift_ns < 0:
            raise UserError(f"the clock of {member.host} reads less than 0; write --format perfetto instead")
        drawing = Drawing(
            member.processes,
            picture.notes,
            _of(pids, slices, held_slices, lambda some: some.pid),
            _of(pids, points, held_points, lambda point: point.pid),
            shift_ns,
        )
        with archive.open(_entry(member.name), "w", force_zip64=True) as file:
            written = write_packets(cast(BinaryIO, file), drawing)
        slice_count += written.slices
        size += written.size_bytes
    return slice_count, size


def _of(
    pids: set[int], stream: Iterator[_Drawn], held: list[_Drawn], pid_of: Callable[[_Drawn], int]
) -> Iterator[_Drawn]:
    """What `stream`, which is ordered by process, has next of `pids`; the first of another one is held back."""
    while True:
        item = held.pop() if held else next(stream, None)
        if item is None:
            return
        if pid_of(item) not in pids:
            held.append(item)
            return
        yield item


def _entry(name: str) -> zipfile.ZipInfo:
    """The head of an archive's file; the date is fixed, so that the same trace gives the same bytes."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
