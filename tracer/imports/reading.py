"""Find out what files are, and give them to the importer of their format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from .chakra import import_chakra
from .chakra_json import NODES, looks_like_chakra
from .chakra_protobuf import looks_like_protobuf
from .damaged_json import Document, read_document
from .event_rows import Imported
from .foreign_format import ForeignFormat as ForeignFormat
from .horovod_timeline import import_horovod, looks_like_horovod
from .kineto import import_kineto, looks_like_kineto
from .mxnet_profiler import import_mxnet, looks_like_mxnet
from .source_file import SourceFile, read_source

ENDINGS = (".json", ".json.gz", ".et")
LIST_KEYS = ("traceEvents", *NODES)


@dataclass
class _Opened:
    source: SourceFile
    document: Document | None  # None for protobuf
    format: ForeignFormat


def read_foreign(paths: Iterable[Path], wanted: ForeignFormat | None = None) -> Imported:
    """The rows and facts in `paths`: files of one run and one format, or folders of such files.

    `wanted` overrides what the files look like. Raises UserError, with the byte offset where a file's contents are
    to blame, when a file cannot be read, is of no known format, or the files do not belong together.
    """
    opened = [_open(path, wanted) for path in _files(paths)]
    formats = sorted({one.format.value for one in opened})
    if len(formats) > 1:
        raise UserError(
            f"the files are of different formats ({', '.join(formats)}); import them one after the other"
        )
    documents = [(one.source, one.document) for one in opened]
    format = opened[0].format
    if format is ForeignFormat.CHAKRA:
        imported = import_chakra(documents)
    else:
        whole = [(source, document) for source, document in documents if document is not None]
        if format is ForeignFormat.KINETO:
            imported = import_kineto(whole)
        elif len(whole) > 1:
            raise UserError(
                f"{len(whole)} {format.value} files are {len(whole)} runs; import them one after the other"
            )
        else:
            imported = (import_horovod if format is ForeignFormat.HOROVOD else import_mxnet)(whole[0][1])
    for source, document in documents:
        if document is not None and document.repairs:
            imported.meta.notes.insert(0, f"repaired: {', '.join(document.repairs)} ({source.path.name})")
    imported.meta.notes += imported.rows.dropped_notes()
    if not len(imported.rows):
        raise opened[0].source.unreadable(0, f"it holds no {format.value} events")
    return imported


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        try:
            if path.is_dir():
                members = sorted(
                    one for one in path.iterdir() if one.name.endswith(ENDINGS) and one.is_file()
                )
                if not members:
                    raise UserError(f"{path} holds no files that end in {', '.join(ENDINGS)}; name the files")
                found += members
            elif path.is_file():
                found.append(path)
            else:
                reason = "is not a file" if path.exists() else "does not exist"
                raise UserError(f"{path} {reason}; check the name")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
    if not found:
        raise UserError("no files to import; name some")
    return found


def _open(path: Path, wanted: ForeignFormat | None) -> _Opened:
    source = read_source(path)
    binary = wanted in (None, ForeignFormat.CHAKRA) and looks_like_protobuf(source)
    if binary:
        return _Opened(source, None, ForeignFormat.CHAKRA)
    document = read_document(source, LIST_KEYS)
    if wanted is not None:
        return _Opened(source, document, wanted)
    for format, fits in (
        (ForeignFormat.HOROVOD, looks_like_horovod),
        (ForeignFormat.KINETO, looks_like_kineto),
        (ForeignFormat.MXNET, looks_like_mxnet),
        (ForeignFormat.CHAKRA, looks_like_chakra),
    ):
        if fits(document):
            return _Opened(source, document, format)
    known = ", ".join(format.value for format in ForeignFormat)
    raise source.unreadable(0, f"it is of no format that can be imported ({known})")
