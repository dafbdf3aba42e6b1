"""What Fast Horovod is asked for: one dataclass, one flag of `run` and one FASTHVD_* variable a field."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

AUX_MAX = 64
THRESHOLD_MAX_BYTES = 10**15
LIBRARY = Path(__file__).parent / "libfasthvd.so"
LANE_PROGRAM = Path(__file__).parent / "fasthvd-lane"


@dataclass(frozen=True)
class LaneSettings:
    """Lanes per host and how they work; sizes in bytes, times in seconds.

    `threshold_bytes` None: measured when the job starts. `iface` empty: the one MPI uses. `json`: where the counters go
    at the end, a file or "-".
    """

    aux: int
    timeout_s: float = 60.0
    ports: tuple[int, int] | None = None
    iface: str = ""
    chunk_bytes: int | None = None
    threshold_bytes: int | None = None
    stats: bool = False
    pin: bool = False
    json: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Raise UserError for values that cannot work."""
        if not 0 <= self.aux <= AUX_MAX:
            raise UserError(
                f"--aux {self.aux} is not possible: choose 0 (stock Horovod) to {AUX_MAX} lanes a host"
            )
        if not 0.5 <= self.timeout_s <= 86400:
            raise UserError(f"--timeout {self.timeout_s:g} s is not possible: choose 0.5s to 86400s")
        if self.ports is not None and self.ports[1] - self.ports[0] + 1 < self.aux:
            first, last = self.ports
            raise UserError(f"--ports {first}:{last} has fewer ports than lanes: give at least {self.aux}")
        if self.chunk_bytes is not None and not 4096 <= self.chunk_bytes <= 64 << 20:
            raise UserError(f"--chunk {self.chunk_bytes} bytes is not possible: choose 4KiB to 64MiB")
        if self.threshold_bytes is not None and not 0 <= self.threshold_bytes <= THRESHOLD_MAX_BYTES:
            raise UserError(
                f"--threshold {self.threshold_bytes} bytes is not possible: choose 0 (all calls) or more, like 1MB"
            )
        if not re.fullmatch(r"(\^?[\w.:/@,-]{1,200})?", self.iface):
            raise UserError(
                f"--iface '{self.iface[:40]}' is not understood: write names or networks with commas, like eth0,10.1.0.0/16"
            )
        if self.json is not None and self.json != "-":
            require_writable(Path(self.json))

    @property
    def preloads(self) -> bool:
        """Whether the ranks need libfasthvd.so at all: stock Horovod without counters does not."""
        return self.aux > 0 or self.stats or self.json is not None

    def variables(self) -> dict[str, str]:
        """The FASTHVD_* variables that say the same."""
        found = {"FASTHVD_AUX": str(self.aux), "FASTHVD_TIMEOUT": f"{self.timeout_s:g}"}
        if self.ports is not None:
            found["FASTHVD_PORTS"] = f"{self.ports[0]}:{self.ports[1]}"
        if self.iface:
            found["FASTHVD_IFACE"] = self.iface
        if self.chunk_bytes is not None:
            found["FASTHVD_CHUNK_BYTES"] = str(self.chunk_bytes)
        if self.threshold_bytes is not None:
            found["FASTHVD_THRESHOLD_BYTES"] = str(self.threshold_bytes)
        if self.stats:
            found["FASTHVD_STATS"] = "1"
        if self.pin:
            found["FASTHVD_PIN"] = "1"
        if self.json is not None:
            found["FASTHVD_JSON"] = self.json
        if self.quiet:
            found["FASTHVD_QUIET"] = "1"
        return found


def parse_ports(text: str) -> tuple[int, int]:
    """``"9000:9010"`` as (9000, 9010), both included. Raises UserError."""
    found = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", text)
    first, last = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 0 < first <= last < 65536:
        raise UserError(f"--ports '{text}' is not understood: write the first and last port like 9000:9015")
    return first, last


def require_writable(path: Path) -> None:
    """Raise UserError when `path` cannot be a new file: told before the training, not after it."""
    if path.is_dir() or not path.name:
        raise UserError(f"--json '{path}' is a folder: name a file in it, or - for stdout")
    if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UserError(
            f"--json '{path}' cannot be written: choose a file in a writable folder, or - for stdout"
        )


def require_native() -> None:
    """Raise UserError when the native parts are not there."""
    for part in (LIBRARY, LANE_PROGRAM):
        if not os.access(part, os.R_OK if part == LIBRARY else os.X_OK):
            raise UserError(
                f"{part} is missing: install vsketchdlc with a C compiler at hand, or type 'python setup.py native'"
            )


def lanes_above_cores(aux: int, cores: int) -> str | None:
    """A sentence when more lanes than cores are asked for."""
    if aux <= cores:
        return None
    return (
        f"warning: {aux} lanes a host are more than the {cores} cores of this one; "
        "they will share them with the training"
    )
