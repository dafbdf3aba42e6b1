"""Local TCP ports of the first lane on this host, one a line: run inside a lab's host, which sees only its own processes.

python -m vsketchdlc.validation.lane_ports
"""

from __future__ import annotations

import re
from pathlib import Path

_ESTABLISHED = "01"


def main() -> None:
    """Print the ports; nothing where no lane is connected yet."""
    lanes = sorted(int(comm.parent.name) for comm in Path("/proc").glob("[0-9]*/comm") if _is_lane(comm))
    for port in sorted(ports_of(Path(f"/proc/{lanes[0]}"))) if lanes else []:
        print(port)


def _is_lane(comm: Path) -> bool:
    try:
        return comm.read_text().startswith("fasthvd-lane")
    except OSError:
        return False  # it has just ended


def ports_of(process: Path) -> set[int]:
    """Local ports of the open TCP connections of the process with that folder in /proc."""
    inodes = set()
    for entry in (process / "fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
        except OSError:
            continue  # closed meanwhile
        if found:
            inodes.add(found[1])
    rows = [row.split() for row in (process / "net" / "tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == _ESTABLISHED and row[9] in inodes}


if __name__ == "__main__":
    main()
