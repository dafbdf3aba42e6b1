"""One slow flow: while a job runs, the flows that the first lane of the first host sends are slowed down.

What a path does that is shared with somebody else's traffic. Stock Horovod's connection is left as it is.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from types import TracebackType

from ..errors import UserError
from .lab import Lab

_PAUSE_S = 0.5


class SlowLane:
    """Slows the lane down as soon as it is connected; ``slowed`` says whether that has happened."""

    def __init__(self, lab: Lab, bits_per_s: float) -> None:
        self._lab, self._bits_per_s = lab, bits_per_s
        self._host = lab.spec.names[0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="slow-lane", daemon=True)
        self.slowed = False

    def __enter__(self) -> SlowLane:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self.slowed and not self._over.wait(_PAUSE_S):
            ports = self._ports()
            if ports:
                self._slow(ports)

    def _ports(self) -> set[int]:
        words = [sys.executable, "-m", "vsketchdlc.validation.lane_ports"]
        done = self._lab.run(
            self._host, words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=20
        )
        return {int(line) for line in (done.stdout or "").split()}

    def _slow(self, ports: set[int]) -> None:
        flows = [flow for flow in self._lab.flows() if flow.host == self._host and flow.source_port in ports]
        try:
            for flow in flows:
                self._lab.slow_flow(flow, self._bits_per_s)
        except UserError:
            return  # the job has ended, and its flows with it
        self.slowed = bool(flows)
