"""What a live replay plays: a recorded or imported trace, or a network of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..model.calibration import Calibration
from ..model.catalogue import DEVICES, catalogue_workload
from ..model.fitting import calibrate
from ..model.networks import NETWORKS
from ..model.recorded import recorded_scenario, workload_as_recorded
from ..model.workload import Workload
from ..tracer.trace import Trace
from .imported import imported_workload
from .live import busy_threads
from .offline import recorded_step_s

DEFAULT_GPU = "v100"


@dataclass(frozen=True)
class LiveSubject:
    """The workload to drive, busy threads for ``spin``, and what it was recorded with: step time in s, lanes, ranks.

    These are None where nothing was recorded. `filled` are sentences on what the source did not say.
    """

    workload: Workload
    threads: int
    step_s: float | None
    aux: int | None
    ranks: int | None
    filled: list[str]


def live_subject(
    source: str, *, compute: str, gpu: str = DEFAULT_GPU, calibration: Calibration | None = None
) -> LiveSubject:
    """The subject that `source` names: a trace's folder, or a network of the catalogue on a `gpu`.

    With a `compute` that keeps cores busy the contention of the recorded run comes out of its times first, as the
    replay meets its own. Raises UserError when `source` is neither.
    """
    if source in NETWORKS and not Path(source).exists():
        work = catalogue_workload(source, gpu)
        return LiveSubject(work, 1, None, None, None, [f"compute times are published ones: {work.source}"])
    if not Path(source).exists():
        raise UserError(
            f"'{source}' is neither a trace's folder nor a network of the catalogue ({', '.join(NETWORKS)}; "
            f"devices {', '.join(DEVICES)})"
        )
    trace = Trace.open(source)
    threads = busy_threads(trace)
    aux = int(trace.meta.settings.get("aux", 0) or 0)
    if trace.meta.source.startswith("imported"):
        try:
            work = workload_as_recorded(trace)
            return LiveSubject(work, threads, recorded_step_s(trace), aux, trace.meta.ranks, [])
        except UserError:
            found = imported_workload(trace)
        return LiveSubject(found.workload, threads, found.step_s, aux, trace.meta.ranks, found.filled)
    if compute == "sleep":
        work = workload_as_recorded(trace)
    else:
        work = recorded_scenario(trace, calibration or calibrate(trace)).workload
    return LiveSubject(work, threads, recorded_step_s(trace), aux, trace.meta.ranks, [])
