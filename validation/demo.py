"""The demo: the whole loop on one machine, with real MXNet, Horovod, Open MPI and TCP between lab hosts.

1. two hosts (NIC 4 Gbit/s, 1 Gbit/s per flow), or loopback where a lab is not allowed;
2. a traced trial of real AlexNet training under stock Horovod;
3. a lane probe, the calibration, a predicted step time for 0 to 6 lanes, the choice;
4. the same training for real at 0, the chosen and two other counts;
5. predicted against measured.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from ..errors import BadNews
from ..tracer.launcher import run_own
from .lab import Lab, LabSpec, missing_rights
from .lab_runs import run_on_h0
from .live import demand_live

AUX_MAX = 6
TRACED_STEPS = 8
MEASURED_STEPS = 12
# The first steps of a run connect sockets, fill Horovod's cache and touch pages for the first time.
WARM_UP_STEPS = 2
VOID_RUNS = 3
BATCH = 4
TRAINING = Path(__file__).parents[1] / "examples" / "train_mxnet.py"


@dataclass(frozen=True)
class Measured:
    """A real run of the training at one count: median step time after the warm-up, and every step's time."""

    aux: int
    step_s: float
    all_step_s: list[float]

    @property
    def steps(self) -> int:
        """Steps run, warm-up included."""
        return len(self.all_step_s)


@dataclass(frozen=True)
class Predicted:
    """The model's word on one count, given before that count was run."""

    aux: int
    step_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found; `lab` says where, `limits` what that place cannot show."""

    chosen_aux: int
    reason: str
    predicted: list[Predicted]
    measured: list[Measured]
    lab: str
    limits: list[str]

    def measured_at(self, aux: int) -> Measured:
        """The run at `aux` lanes."""
        return next(run for run in self.measured if run.aux == aux)

    def error_at(self, aux: int) -> float:
        """(predicted - measured) / measured of the step time at `aux` lanes."""
        measured = self.measured_at(aux).step_s
        return (self.predicted[aux].step_s - measured) / measured

    @property
    def speedup(self) -> float:
        """Measured step time of stock Horovod over that of the chosen count."""
        return self.measured_at(0).step_s / self.measured_at(self.chosen_aux).step_s

    @property
    def mean_abs_error(self) -> float:
        """Mean of the absolute relative errors over the counts that were run."""
        return sum(abs(self.error_at(run.aux)) for run in self.measured) / len(self.measured)

    @property
    def regret(self) -> float:
        """How much slower the chosen count is than the best one that was run."""
        return self.measured_at(self.chosen_aux).step_s / min(run.step_s for run in self.measured) - 1

    def to_json(self) -> dict[str, Any]:
        """The content of ``result.json``."""
        return {
            "chosen_aux": self.chosen_aux,
            "reason": self.reason,
            "predicted": [vars(row) for row in self.predicted],
            "measured": [
                {"aux": run.aux, "step_s": run.step_s, "steps": run.steps, "all_step_s": run.all_step_s}
                for run in self.measured
            ],
            "speedup": self.speedup,
            "mean_abs_error": self.mean_abs_error,
            "regret": self.regret,
            "lab": self.lab,
            "limits": self.limits,
        }


class Place(Protocol):
    """Where the demo's commands run."""

    description: str
    limits: list[str]
    mpirun: list[str]

    def run(self, command: Sequence[str]) -> int:
        """Run `command` to its end and return its exit status."""


class LabPlace:
    """Two emulated hosts; commands start on h0."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._say = say
        self.description = f"lab: {lab.spec.describe()}"
        self.limits = lab.spec.limits()
        self.mpirun = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1"]

    def run(self, command: Sequence[str]) -> int:
        """Run `command` on h0; again when two big flows shared one per-flow cap, which no real network does."""
        for _ in range(VOID_RUNS):
            status, collisions = run_on_h0(self._lab, command, output=sys.stderr)
            if status != 0 or not collisions:
                return status
            self._say(f"void: {collisions[0]}")
        raise BadNews(f"{VOID_RUNS} runs in a row were void: flows shared one per-flow cap of the lab")


class LoopbackPlace:
    """Both ranks on this machine, over its loopback interface: no NIC rate, no per-flow cap."""

    def __init__(self, reason: str) -> None:
        self.description = "loopback"
        self.limits = [
            f"No lab here ({reason}): both ranks share one host and its loopback interface.",
            "Without a NIC rate or per-flow cap there is nothing that lanes could win: expect 0 as the choice.",
        ]
        self.mpirun = ["mpirun", "--bind-to", "none", "-np", "2", "--oversubscribe"]
        tcp = {"btl": "tcp,self", "btl_tcp_if_include": "lo", "mpi_yield_when_idle": "1"}
        self._environment = {**os.environ, **{f"OMPI_MCA_{name}": value for name, value in tcp.items()}}
        self._environment |= {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, command: Sequence[str]) -> int:
        """Run `command` here."""
        return run_own(command, self._environment, stdout=sys.stderr)


def demo_lab() -> LabSpec:
    """Two hosts as on a small cloud machine: the NIC is four times what one flow may have.

    Each host gets real cores of its own, as real hosts have: a host's idle core must not speed up the other.
    """
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // 2
    own = (
        {}
        if share == 0
        else {"h0": {"cpus": tuple(cores[:share])}, "h1": {"cpus": tuple(cores[share : 2 * share])}}
    )
    return LabSpec(hosts=2, nic_bits_per_s=4e9, flow_cap_bits_per_s=1e9, overrides=own)


@contextmanager
def demo_place(output: Path, say: Callable[[str], None]) -> Iterator[Place]:
    """The lab where it is allowed, else loopback (which says so in its `limits`)."""
    missing = missing_rights()
    if missing:
        yield LoopbackPlace(missing)
        return
    with Lab(demo_lab(), shared=[output]) as lab:
        yield LabPlace(lab, say)


def run_demo(output: Path, say: Callable[[str], None]) -> DemoResult:
    """Run the whole demo; files go to `output`; `say` is told each stage.

    Raises UserError when MXNet or Horovod is missing, BadNews when a stage fails.
    """
    demand_live("the demo trains for real and")
    with demo_place(output, say) as place:
        for sentence in (place.description, *place.limits):
            say(sentence)
        tuned = _tune(place, output, say)
        counts = counts_to_measure(tuned["chosen_aux"])
        measured = [_measure(place, aux, output, say) for aux in counts]
        predicted = [
            Predicted(**{name: row[name] for name in ("aux", "step_s", "low_s", "high_s")})
            for row in tuned["predicted"]
        ]
        return DemoResult(
            tuned["chosen_aux"], tuned["reason"], predicted, measured, place.description, place.limits
        )


def counts_to_measure(chosen: int) -> list[int]:
    """0, the chosen count and two others that show whether the choice was right: fewer and more lanes."""
    others = [
        aux
        for aux in (chosen - 2, chosen + 2, chosen + 1, chosen - 1, 4)
        if 0 < aux <= AUX_MAX and aux != chosen
    ]
    wanted = 3 if chosen == 0 else 2
    return sorted({0, chosen, *list(dict.fromkeys(others))[:wanted]})


def _training(steps: int, result: Path) -> list[str]:
    options = {"--model": "alexnet", "--batch": str(BATCH), "--steps": str(steps), "--json": str(result)}
    return [sys.executable, str(TRAINING), *(word for pair in options.items() for word in pair)]


def _tune(place: Place, output: Path, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"trial of {TRACED_STEPS} traced steps, lane probe, calibration")
    answer = output / "tune.json"
    words = [
        sys.executable,
        "-m",
        "vsketchdlc",
        "tune",
        "--dry-run",
        "--no-cache",
        "--quiet",
        "--aux-max",
        str(AUX_MAX),
    ]
    words += ["--trial-steps", str(TRACED_STEPS), "--output", str(output), "--json", str(answer), "--"]
    status = place.run([*words, *place.mpirun, *_training(1000, output / "trial.json")])
    if status != 0:
        raise BadNews(f"the demo's tuning ended with status {status}; its messages are above")
    data: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return data


def _measure(place: Place, aux: int, output: Path, say: Callable[[str], None]) -> Measured:
    say(
        f"real training, {MEASURED_STEPS} steps with {aux} lanes a host"
        if aux
        else f"real training, {MEASURED_STEPS} steps, stock Horovod"
    )
    result = output / f"steps-aux{aux}.json"
    result.unlink(missing_ok=True)
    words = [sys.executable, "-m", "vsketchdlc", "run", "--aux", str(aux), "--"]
    status = place.run([*words, *place.mpirun, *_training(MEASURED_STEPS, result)])
    if status != 0 or not result.exists():
        raise BadNews(f"the training with {aux} lanes ended with status {status}; its messages are above")
    seconds = json.loads(result.read_text(encoding="utf-8"))["step_s"]
    return Measured(aux, median(seconds[WARM_UP_STEPS:]), seconds)
