"""What a lab needs of the machine, and in one line what is missing."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from ...errors import UserError

_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_NAMESPACES = ("net", "mnt", "pid", "uts", "ipc")


def missing() -> str | None:
    """What is missing for a lab and how to get it, one line; None when a lab can be tried.

    The kernel's own refusals (no HTB, no bridge) show only when a lab starts; they end as UserError too.
    """
    if sys.platform != "linux":
        return "a lab needs Linux (network namespaces)"
    if importlib.util.find_spec("pyroute2") is None:
        return "a lab needs pyroute2; type: pip install 'vsketchdlc[lab]'"
    lacking = [name for name in _NAMESPACES if not Path(f"/proc/self/ns/{name}").exists()]
    if lacking:
        return f"a lab needs kernel namespaces, and this kernel lacks {', '.join(lacking)}"
    effective = _effective_capabilities()
    for number, name in ((_CAP_SYS_ADMIN, "CAP_SYS_ADMIN"), (_CAP_NET_ADMIN, "CAP_NET_ADMIN")):
        if not effective >> number & 1:
            who = "root without" if os.geteuid() == 0 else "not root and have no"
            how = "in a container, start it with --privileged" if os.geteuid() == 0 else "use sudo"
            return f"a lab makes network namespaces, and you are {who} {name}; {how}"
    return None


def demand() -> None:
    """Raise UserError with what is missing, if anything is."""
    line = missing()
    if line is not None:
        raise UserError(line)


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
