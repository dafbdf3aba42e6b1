"""Marks of a live replay's steps for the tracer, so that a traced replay is a trace like that of a training.

The tracer's own hook finds steps in MXNet's autograd and trainer, which a replay does not use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..tracer.hook import _vsketch_mxnet as marks
from ..tracer.hook._vsketch_hook import Library
from .live_plan import ReplayTensor


class StepMarks:
    """Tells the tracer where a step's parts begin and end; does nothing in a process that is not traced."""

    def __init__(self, tensors: Sequence[ReplayTensor]) -> None:
        self._library: Library | None = None
        self._step = -1
        if os.environ.get("VSKETCH_DIR"):
            try:
                library = Library()
            except AttributeError:
                return
            self._library = library if library.ready() else None
            settings = {name: os.environ[name] for name in marks.SETTINGS if name in os.environ}
            parameters = [
                {"index": i, "name": t.name, "shape": [t.elements], "dtype": t.dtype, "order": i}
                for i, t in enumerate(tensors)
            ]
            library.write(parameters=parameters, batch_size=None, aggregation=0, settings=settings)

    def begin(self) -> None:
        """The next step's forward pass begins."""
        self._step += 1
        if self._library is not None:
            self._library.step(self._step)
            self._library.mark(marks.FORWARD_BEGIN, self._step)
            self._library.sample()

    def forward_end(self) -> None:
        """Forward is done."""
        self._mark(marks.FORWARD_END)

    def backward_end(self) -> None:
        """Backward is done."""
        self._mark(marks.BACKWARD_END)

    def update_call(self) -> None:
        """The optimizer is called."""
        self._mark(marks.UPDATE_CALL)

    def update_end(self) -> None:
        """All weights are written."""
        self._mark(marks.UPDATE_END)

    def _mark(self, kind: int) -> None:
        if self._library is not None:
            self._library.mark(kind, self._step)
