"""JSON documents and event lists from files that were cut, overwritten or never closed.

A whole document is read by Python's json. Where that fails, a scanner goes once over the text, follows brackets
and strings, and takes every complete object that stands where events stand: in the file's array, in an array of
its top object (``traceEvents``), or on its own (JSON Lines). An object that starts a line less or as far indented
as the one that is still open shows that the open one was cut. The scan is linear, whatever the text is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .source_file import SourceFile

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|[{}\[\]]')
_DECODER = json.JSONDecoder(strict=False)
_BLANK = " \t\r\n,\x00\ufeff"


@dataclass
class Document:
    """What a file holds: `top` is the top object without its arrays of objects, `objects` are those objects.

    `repairs` says in words what was missing, wrong or left out.
    """

    top: dict[str, Any] = field(default_factory=dict)
    objects: list[dict[str, Any]] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)


def read_document(source: SourceFile, list_keys: tuple[str, ...]) -> Document:
    """The document in `source`: an array, JSON Lines, or an object with an array under one of `list_keys`.

    Raises UserError with the byte offset where no object can be found.
    """
    text = source.data.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip(_BLANK))
    document = Document(repairs=list(source.repairs))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        _take_head(text, start, list_keys, document)
        wrong_at = error.pos if isinstance(error, json.JSONDecodeError) else start
        return _scanned(source, text, start, document, wrong_at)
    rest = text[end:].strip(_BLANK)
    if rest and isinstance(value, dict) and not any(key in value for key in list_keys):
        return _scanned(source, text, start, document, None)
    if rest:
        document.repairs.append(f"{_size(text[end:]):,} bytes behind the end ignored")
    _take(value, list_keys, document)
    if not document.objects and not document.top:
        raise source.unreadable(_size(text[:start]), "it holds no events")
    return document


def _take(value: Any, list_keys: tuple[str, ...], document: Document) -> None:
    if isinstance(value, dict):
        document.top = {key: item for key, item in value.items() if key not in list_keys}
        value = next((value[key] for key in list_keys if key in value), [])
    items = value if isinstance(value, list) else []
    document.objects = [item for item in items if isinstance(item, dict)]
    strange = len(items) - len(document.objects)
    if strange:
        document.repairs.append(f"{_count(strange, 'entry', 'entries')} that are no objects ignored")


def _take_head(text: str, start: int, list_keys: tuple[str, ...], document: Document) -> None:
    """Keep what a cut document's top object says before its array of events."""
    keys = "|".join(re.escape(key) for key in list_keys)
    begin = re.compile(rf'"(?:{keys})"\s*:\s*\[').search(text, start)
    if begin is None or text[start : start + 1] != "{":
        return
    try:
        value, _ = _DECODER.raw_decode(text[start : begin.end()] + "]}")
    except (ValueError, RecursionError):
        return
    document.top = {key: item for key, item in value.items() if key not in list_keys}


@dataclass(frozen=True)
class _Open:
    """One of the outermost three brackets that are not closed yet."""

    position: int
    indent: int | None  # of the line that it starts; None inside a line
    is_event: bool


class _Brackets:
    """What is open at some place of the text; of the deep ones only the kind is kept, one byte each."""

    def __init__(self) -> None:
        self._kinds = bytearray()
        self.outer: list[_Open] = []

    def open(self, kind: str, position: int, indent: int | None) -> None:
        if len(self._kinds) < 3:
            is_event = kind == "{" and bytes(self._kinds) in (b"", b"[", b"{[")
            self.outer.append(_Open(position, indent, is_event))
        self._kinds += kind.encode()

    def close(self, kind: str) -> _Open | None:
        """The outer bracket that `kind` closes; None for a deep one and for a closing bracket that fits none."""
        if not self._kinds or self._kinds[-1] != ord("{" if kind == "}" else "["):
            return None
        self._kinds.pop()
        return self.outer.pop() if len(self._kinds) < 3 else None

    def cut(self, indent: int) -> bool:
        """Drop the open event that an object which starts a line with `indent` shows to be cut, if any."""
        for place in (2, 1):
            if place < len(self.outer) and self.outer[place].is_event:
                known = self.outer[place].indent
                if known is None or indent > known:
                    return False
                del self.outer[place:]
                del self._kinds[place:]
                return True
        return False

    def __len__(self) -> int:
        return len(self._kinds)


def _scanned(source: SourceFile, text: str, start: int, document: Document, wrong_at: int | None) -> Document:
    """Take all complete objects of a document that is not one value, whole or (`wrong_at`) damaged."""
    brackets = _Brackets()
    partial = broken = 0
    end: int | None = None
    for token in _TOKEN.finditer(text, start):
        word = token[0]
        if word in ("{", "["):
            indent = _indent(text, token.start()) if word == "{" else None
            if indent is not None and brackets.cut(indent):
                partial += 1
            brackets.open(word, token.start(), indent)
        elif word in ("}", "]"):
            opened = brackets.close(word)
            if opened is not None and opened.is_event:
                broken += not _add(text[opened.position : token.end()], document, whole=not brackets)
            elif opened is not None and not brackets and word == "]":
                end = token.end()
                break
    partial += any(one.is_event and one.position > start for one in brackets.outer)
    before = len(document.repairs)
    if brackets:
        document.repairs.append('missing "]"' if text[start] == "[" else 'missing "]}"')
    if partial:
        document.repairs.append(f"{_count(partial, 'partial event', 'partial events')} dropped")
    if broken:
        document.repairs.append(f"{_count(broken, 'unreadable event', 'unreadable events')} dropped")
    if end is not None and text[end:].strip(_BLANK):
        document.repairs.append(f"{_size(text[end:]):,} bytes behind the end ignored")
    if not document.objects:
        raise source.unreadable(_size(text[: wrong_at or start]), "no complete event can be found in it")
    if wrong_at is not None and len(document.repairs) == before:
        document.repairs.append(f"unreadable text at byte offset {_size(text[:wrong_at])} ignored")
    return document


def _indent(text: str, position: int) -> int | None:
    """How far the bracket at `position` is indented when it is the first thing on its line, else None."""
    place = position - 1
    while place >= 0 and text[place] in " \t," and position - place < 200:
        place -= 1
    return position - place - 1 if place < 0 or text[place] == "\n" else None


def _add(piece: str, document: Document, *, whole: bool) -> bool:
    """Add one object; the top object of a document is only taken when no event was found in it."""
    if whole and document.objects and "\n" in piece:
        return True
    try:
        value, _ = _DECODER.raw_decode(piece)
    except (ValueError, RecursionError):
        return False
    if isinstance(value, dict):
        document.objects.append(value)
    return isinstance(value, dict)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _size(text: str) -> int:
    """How many bytes of the file `text` was."""
    return len(text.encode("utf-8", "surrogateescape"))
