"""In rank 0 of a tuned training: the first steps against their prediction, told in one line on stderr.

FASTHVD_WATCH is JSON: step_s, low_s, high_s (the prediction's median and interval), skip and steps (how many to
leave out and to time), and result (a file for the figures, or null). Standard library only.
"""

import importlib.abc
import importlib.util
import itertools
import json
import os
import statistics
import sys
import time
from typing import Any


class Watch:
    """Times the optimizer steps of the first trainer that steps."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.trainer: Any = None
        self.stamps: list[float] = []

    def stepped(self, trainer: Any) -> None:
        """An update of `trainer` begins."""
        if self.trainer is None:
            self.trainer = id(trainer)
        if self.trainer != id(trainer) or len(self.stamps) > self.plan["skip"] + self.plan["steps"]:
            return
        self.stamps.append(time.perf_counter())
        if len(self.stamps) == self.plan["skip"] + self.plan["steps"] + 1:
            self.tell()

    def tell(self) -> None:
        """Compare, say so, and leave the figures in the result file."""
        chosen = self.stamps[self.plan["skip"] :]
        seconds = [after - before for before, after in itertools.pairwise(chosen)]
        step_s, low_s, high_s = (self.plan[name] for name in ("step_s", "low_s", "high_s"))
        took_s = statistics.median(seconds)
        within = low_s <= took_s <= high_s
        verdict = "as predicted" if within else f"{took_s / step_s - 1:+.0%}, outside the prediction"
        if not within and not self.plan["result"]:
            verdict += "; 'vsketchdlc tune --adapt' calibrates on them"
        print(
            f"vsketchdlc: {len(seconds)} steps took {took_s:.4g} s each (median); predicted were {step_s:.4g} s "
            f"({low_s:.4g} to {high_s:.4g} s): {verdict}",
            file=sys.stderr,
            flush=True,
        )
        if self.plan["result"]:
            with open(self.plan["result"], "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump({"step_s": took_s, "within": within, "steps": len(seconds)}, file)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for MXNet's trainer and wraps its update once it is there."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:
        if name != "mxnet.gluon.trainer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.watch)
        return spec


class _Loader(importlib.abc.Loader):
    """The real loader, and the wrapping after it."""

    def __init__(self, real: Any, watch: Watch) -> None:
        self.real = real
        self.watch = watch

    def create_module(self, spec: Any) -> Any:
        return self.real.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.real.exec_module(module)
        trainer_class, watch = module.Trainer, self.watch
        update = trainer_class._update

        def watched(trainer: Any, *arguments: Any, **options: Any) -> Any:
            watch.stepped(trainer)
            return update(trainer, *arguments, **options)

        trainer_class._update = watched


def install() -> None:
    """Watch in rank 0 only: all ranks step together."""
    ranks = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
    if next((os.environ[name] for name in ranks if name in os.environ), "0") == "0":
        sys.meta_path.insert(0, _Finder(Watch(json.loads(os.environ["FASTHVD_WATCH"]))))
