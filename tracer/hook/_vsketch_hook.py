"""Waits for the modules that are worth wrapping, and wraps them right after their import.

Nothing is imported for the user: a script that never imports mxnet or horovod is left alone.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import json
import os
import sys
from typing import Any


class Library:
    """The preloaded libvsketch.so, its calls typed; `PyDLL` because they take nanoseconds and need no GIL dance."""

    def __init__(self) -> None:
        native = ctypes.PyDLL(None)
        self.ready = native.vsketch_ready
        self.switch = native.vsketch_switch
        self.step = native.vsketch_step
        self.name = native.vsketch_name
        self.mark = native.vsketch_mark
        self.marker = ctypes.cast(native.vsketch_marker, ctypes.c_void_p)
        self.recording = native.vsketch_recording
        self.sample = native.vsketch_sample
        self.join = native.vsketch_join
        native.vsketch_folder.restype = ctypes.c_char_p
        self._folder = native.vsketch_folder
        native.vsketch_identity.argtypes = [ctypes.c_char_p]
        self.identity = native.vsketch_identity
        self._file: int | None = None

    def write(self, **entry: Any) -> None:
        """Append one line to hook.jsonl of this process; a full disk ends it silently (the logs say so)."""
        try:
            if self._file is None:
                folder = self._folder()
                if folder is None:
                    return
                self._file = os.open(
                    os.fsdecode(folder) + "/hook.jsonl",
                    os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                    0o600,
                )
            os.write(self._file, (json.dumps(entry) + "\n").encode())
        except OSError:
            pass


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the awaited modules like everyone else, and adds a call after their execution."""

    def __init__(self, awaited: Any) -> None:
        self.awaited = awaited

    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:
        if name not in self.awaited:
            return None
        after = self.awaited.pop(name)
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, after)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """The real loader, and a call when the module is there."""

    def __init__(self, real: Any, after: Any) -> None:
        self.real = real
        self.after = after

    def __getattr__(self, name: Any) -> Any:
        return getattr(self.real, name)

    def create_module(self, spec: Any) -> Any:
        return self.real.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.real.exec_module(module)
        module.__loader__ = self.real
        if module.__spec__ is not None:
            module.__spec__.loader = self.real
        try:
            self.after(module)
        except Exception as error:
            print(f"vsketchdlc: {module.__name__} is not traced: {error}", file=sys.stderr)


def install() -> None:
    """Await mxnet and horovod in this interpreter, if the library is preloaded and the process traced."""
    try:
        library = Library()
    except AttributeError:
        return  # PYTHONPATH came along without LD_PRELOAD: nothing would be recorded
    if not library.ready():
        return
    import _vsketch_mxnet

    hook = _vsketch_mxnet.Hook(library)
    sys.meta_path.insert(
        0,
        _Finder(
            {
                "mxnet.autograd": hook.after_autograd,
                "mxnet.gluon.trainer": hook.after_trainer,
                "horovod.mxnet.mpi_ops": hook.after_horovod,
            }
        ),
    )
