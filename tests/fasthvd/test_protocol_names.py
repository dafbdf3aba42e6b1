"""The state machine in Python and the one in C have the same states, causes and kinds, by the same names and numbers."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import pytest
from vsketchdlc.fasthvd import lanes, protocol, settings

COMMON = Path(settings.__file__).parent / "native" / "common"
HEADERS = "".join(
    re.sub(r"/\*.*?\*/", "", (COMMON / name).read_text(), flags=re.DOTALL)
    for name in ("protocol.h", "ring.h")
)


def c_enum(name: str) -> dict[str, int]:
    """Names and numbers of `enum name`."""
    body = re.search(rf"enum {name} {{(.*?)}}", HEADERS, re.DOTALL)
    assert body, name
    found: dict[str, int] = {}
    number = -1
    for entry in filter(None, (entry.strip() for entry in body.group(1).split(","))):
        word, _, value = (part.strip() for part in entry.partition("="))
        number = int(value) if value else number + 1
        found[word] = number
    return found


def c_define(name: str) -> int:
    found = re.search(rf"(?:#define {name} |\b{name} = )(0x[0-9a-f]+|\d+)", HEADERS)
    assert found, name
    return int(found.group(1), 0)


@pytest.mark.parametrize(
    ("name", "prefix", "python"),
    [
        ("lane_state", "LANE_", protocol.LaneState),
        ("ring_state", "RING_", protocol.RingState),
        ("cause", "CAUSE_", protocol.Cause),
        ("frame_kind", "FRAME_", protocol.FrameKind),
        ("ring_action_kind", "ACTION_", protocol.ActionKind),
    ],
)
def test_enums(name: str, prefix: str, python: type[IntEnum]):
    assert c_enum(name) == {prefix + member.name: member.value for member in python}


def test_types_and_operations_of_the_binding():
    types, operations = c_enum("element_type"), c_enum("operation")
    assert types.pop("TYPES") == len(lanes.TYPES) == len(protocol.ELEMENT_BYTES)
    assert operations.pop("OPERATIONS") == len(lanes.OPERATIONS)
    assert [f"T_{name.upper()}" for name in lanes.TYPES] == list(types)
    assert [f"OP_{name.upper()}" for name in lanes.OPERATIONS] == list(operations)
    bits = [int(re.sub(r"\D", "", name)) for name in lanes.TYPES]
    assert bits == [8 * width for width in protocol.ELEMENT_BYTES]


def test_numbers():
    assert c_define("FRAME_MAGIC") == protocol.MAGIC
    assert c_define("SHARE_WHOLE") == protocol.SHARE_WHOLE
    assert c_define("ELEMENTS_ALIGN") == protocol.ELEMENTS_ALIGN
    assert c_define("LANES_MAX") == settings.AUX_MAX
    assert c_define("CAUSE_BYTES") == lanes.CAUSE_BYTES


def test_every_state_of_a_lane_is_entered_somewhere_in_the_lane_program():
    source = "".join(path.read_text() for path in (COMMON.parent / "lane").glob("*.c"))
    entered = set(re.findall(r"->?state = (LANE_\w+)", source)) | set(
        re.findall(r"lane\.state = (LANE_\w+)", source)
    )
    assert entered == set(c_enum("lane_state"))
