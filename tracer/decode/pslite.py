"""ps-lite's messages: the protobuf Meta of each, read without its schema's help.

Fields of ``ps.PBMeta`` in MXNet 1.9.1 (seen on the wire): 1 head, 2 body, 3 control, 4 request, 5 push,
6 simple_app, 7 customer_id, 8 timestamp, 9 data_type (packed), 10 app_id, 12 pull, 13 priority.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import raw
from ..raw import RawProcess

HEAD, BODY, CONTROL, REQUEST, PUSH, SIMPLE_APP = 1, 2, 3, 4, 5, 6
CUSTOMER, TIMESTAMP, DATA_TYPE, APP, PULL = 7, 8, 9, 10, 12
ALL_KEYS = 2**64 - 1


@dataclass(frozen=True)
class Message:
    """One message at one end. `first_ns` and `last_ns`: when its first and last byte went through."""

    connection: int
    sent: bool
    first_ns: int
    last_ns: int
    bytes: int
    key: int
    timestamp: int
    customer: tuple[int, int]
    request: bool
    push: bool
    pull: bool
    control: bool


def read_fields(data: bytes) -> dict[int, int | bytes]:
    """Fields of a protobuf message by number; of a repeated one the last. Stops where `data` is cut short."""
    found: dict[int, int | bytes] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            found[number], place = _varint(data, place)
        elif wire == 2:
            size, place = _varint(data, place)
            found[number] = data[place : place + size]
            place += size
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        else:
            break
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, place


def key_and_server(key: int, servers: int) -> tuple[int, int]:
    """The KVStore's key and the server's place in the key space, from the key on the wire.

    Server i owns the keys from ``ALL_KEYS // servers * i`` on; a key of the store is counted from there.
    """
    width = ALL_KEYS // max(servers, 1)
    server = min(key // width, servers - 1)
    return key - width * server, server


def messages_of(process: RawProcess) -> list[Message]:
    """The ps-lite messages of `process`, each log's in its own order."""
    found = []
    for log in process.logs:
        records = log.records
        ends = log.end_ns
        for place in np.flatnonzero(records["kind"] == raw.MESSAGE).tolist():
            record = records[place]
            size = int(record["b"]) >> 48
            parts = records[place + 1 : place + 1 + (size + 15) // 16]
            if len(parts) * 16 < size or not (parts["kind"] == raw.META).all():
                continue  # the log ends within it
            meta = np.column_stack([parts["b"], parts["c"]]).astype("<u8").tobytes()[:size]
            found.append(_message(record, int(ends[place]), read_fields(meta)))
    return found


def _message(record: np.void, end_ns: int, fields: dict[int, int | bytes]) -> Message:
    def number(field: int) -> int:
        value = fields.get(field, 0)
        return value if isinstance(value, int) else 0

    return Message(
        connection=int(record["a"]),
        sent=bool(int(record["flags"]) & raw.FLAG_SENT),
        first_ns=int(record["t"]),
        last_ns=end_ns,
        bytes=int(record["b"]) & (2**48 - 1),
        key=int(record["c"]),
        timestamp=number(TIMESTAMP),
        customer=(number(APP), number(CUSTOMER)),
        request=bool(number(REQUEST)),
        push=bool(number(PUSH)),
        pull=bool(number(PULL)),
        # Commands carry a body, which may be longer than what is kept of the Meta: what follows it is cut off.
        control=CONTROL in fields or BODY in fields or bool(number(SIMPLE_APP)),
    )
