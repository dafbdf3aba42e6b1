"""Start and stop the recording from the training script itself."""

from __future__ import annotations

import ctypes


def start_trace() -> bool:
    """Record from now on; returns False where this process was not started by ``vsketchdlc trace``.

    Call it on all ranks at the same point, best between two steps. With ``trace --armed`` nothing is recorded
    before the first call.
    """
    return _switch(True)


def stop_trace() -> bool:
    """Record nothing from now on; operations under way are finished. Returns as `start_trace`."""
    return _switch(False)


def _switch(on: bool) -> bool:
    native = ctypes.PyDLL(None)
    try:
        if not native.vsketch_ready():
            return False
        native.vsketch_switch(int(on))
    except AttributeError:
        return False  # not preloaded
    return True
