"""Whether this environment can train for real."""

from __future__ import annotations

import subprocess
import sys

from ..errors import UserError


def demand_live(who: str) -> None:
    """Raise UserError, beginning with `who`, when mxnet or Horovod is missing here."""
    probe = subprocess.run(
        [sys.executable, "-c", "import horovod.mxnet"], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        raise UserError(
            f"{who} needs mxnet and Horovod: type 'make demo' in the repository, which sets them up"
        )
