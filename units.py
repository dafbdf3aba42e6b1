"""Parse and print quantities with their units: the only place that knows the spellings.

Inside the program everything is SI base units: seconds, bytes, bits per second. A size with a decimal
prefix is a power of ten (``MB`` = 10^6 bytes), with a binary prefix a power of two (``MiB`` = 2^20).
"""

from __future__ import annotations

import math
import re

from .errors import UserError

_NUMBER = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ/%]*)\s*$")

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_BYTES = {
    "B": 1.0,
    "KB": 1e3,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
_BITS_PER_S = {
    "bit/s": 1.0,
    "kbit/s": 1e3,
    "Kbit/s": 1e3,
    "Mbit/s": 1e6,
    "Gbit/s": 1e9,
    "kbit": 1e3,
    "Mbit": 1e6,
    "Gbit": 1e9,
    "Mbps": 1e6,
    "Gbps": 1e9,
}


def _parse(text: str, units: dict[str, float], default: str, what: str, example: str) -> float:
    found = _NUMBER.match(text)
    if found is None or (found.group(2) or default) not in units:
        raise UserError(f"{what} '{text}' is not understood: write it like {example}")
    value = float(found.group(1)) * units[found.group(2) or default]
    if not math.isfinite(value):
        raise UserError(f"{what} '{text}' is not a finite number: write it like {example}")
    return value


def parse_seconds(text: str, default: str = "s", what: str = "time") -> float:
    """Seconds from ``"1.5 ms"``, ``"60s"`` or a bare number in `default` units."""
    return _parse(text, _SECONDS, default, what, "1.5ms or 60s")


def parse_bytes(text: str, default: str = "B", what: str = "size") -> int:
    """Bytes from ``"64 MiB"``, ``"10MB"`` or a bare number in `default` units."""
    return round(_parse(text, _BYTES, default, what, "64MiB or 10MB"))


def parse_bits_per_s(text: str, default: str = "Gbit/s", what: str = "rate") -> float:
    """Bits per second from ``"10 Gbit/s"``, ``"250Mbit/s"`` or a bare number in `default` units."""
    return _parse(text, _BITS_PER_S, default, what, "10Gbit/s or 250Mbit/s")


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(value) >= 0.9995 * factor:  # what three digits would make 1e+03 of the next unit
            return f"{value / factor:.3g} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:.3g} {unit}"


def format_seconds(value: float) -> str:
    """``"1.23 s"``, ``"45.6 ms"``, ``"7.8 us"``: three digits that matter."""
    if not math.isfinite(value):
        return str(value)
    return _scaled(value, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])


def format_bytes(value: float) -> str:
    """``"244 MB"`` (10^6 bytes): three digits that matter."""
    return _scaled(value, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])


def format_bits_per_s(value: float) -> str:
    """``"3.81 Gbit/s"``: three digits that matter."""
    if not math.isfinite(value):
        return "unlimited"
    return _scaled(value, [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
