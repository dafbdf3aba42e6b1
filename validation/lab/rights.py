"""What a lab needs of the machine, and in one line what is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from ...errors import UserError

_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
# Root of a user namespace of one's own has all a lab needs but CPU quotas, where the kernel allows it.
_AS_ROOT = ("unshare", "--user", "--map-root-user")
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
            if os.geteuid() == 0:
                return (
                    f"a lab makes network namespaces, and you are root without {name}; "
                    "in a container, start it with --privileged"
                )
            other_way = f", or type: {' '.join(_AS_ROOT)} vsketchdlc ..." if _may_be_own_root() else ""
            return f"a lab makes network namespaces, and you are not root and have no {name}; use sudo{other_way}"
    return None


def demand() -> None:
    """Raise UserError with what is missing, if anything is."""
    line = missing()
    if line is not None:
        raise UserError(line)


def _may_be_own_root() -> bool:
    try:
        return (
            subprocess.run([*_AS_ROOT, "true"], capture_output=True, timeout=10, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
