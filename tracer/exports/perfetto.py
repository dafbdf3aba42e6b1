"""A picture as one Perfetto protobuf file: half the size of JSON, ordered rows, exact nanoseconds, one clock."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ...errors import UserError
from ..trace import Trace
from .packets import Drawing, write_packets
from .picture import open_picture
from .whole_file import WrittenFile, export_file
from .window import Costs, choose, told

COSTS = Costs(slice_bytes=78, arrow_bytes=33, counter_bytes=40, text_factor=0.02)

DEFAULT_LIMIT_BYTES = 200_000_000
"""Perfetto needs two to four times a file's size in memory, of which a browser has 2 GB."""


def export_perfetto(
    trace: Trace,
    path: Path,
    *,
    limit_bytes: float = DEFAULT_LIMIT_BYTES,
    steps: tuple[int, int] | None = None,
    hosts: Collection[str | None] | None = None,
) -> WrittenFile:
    """Write `trace` to `path`, below about `limit_bytes` before compression, on the reference host's clock.

    Parameters and errors as for `chrome.export_chrome`.
    """
    with open_picture(trace, hosts) as picture:
        selection = choose(picture, COSTS, limit_bytes, steps)
        picture.select(selection)
        if picture.is_empty():
            raise UserError(f"{trace.path} has no events in the chosen steps and hosts; choose others")
        picture.notes = told(picture, selection, limit_bytes, steps)
        shift_ns = max(0, picture.base_ns)
        with export_file(path) as file:
            drawing = Drawing(
                picture.processes, picture.notes, picture.slices(), picture.counters(), shift_ns
            )
            written = write_packets(file, drawing)
    return WrittenFile(path, written.slices, written.size_bytes, list(picture.notes))
