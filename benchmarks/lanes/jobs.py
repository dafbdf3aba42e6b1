"""Allreduce jobs in the lab: all variants of a case as blocks of one run, timed by the slowest rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vsketchdlc.fasthvd.settings import LANE_PROGRAM, LIBRARY
from vsketchdlc.tracer.launcher import RankEnvironment, prepare
from vsketchdlc.validation.lab import Lab, LabSpec

RANK_PROGRAM = Path(__file__).with_name("rank.py")
MB = 1_000_000
VOID_RUNS = 3
LIMIT_S = 600.0


@dataclass(frozen=True)
class Block:
    """Some back-to-back allreduces. `lanes` None: past the library, to MPI itself. `pause`: `on_pause` runs before it.

    `bare`: without the protection, in a build that can. `alone`: each rank with itself (MPI_COMM_SELF), no network.
    """

    variant: str
    lanes: int | None
    bytes: int
    calls: int
    pause: bool = False
    bare: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Timed:
    """A block that has run: seconds by the slowest rank, CPU seconds of the busiest host a call."""

    block: Block
    call_s: list[float]
    total_s: float
    cpu_s: float
    threshold_bytes: int


@dataclass(frozen=True)
class Build:
    """Which library and lane program a job uses."""

    library: Path = LIBRARY
    program: Path = LANE_PROGRAM


@dataclass(frozen=True)
class Job:
    """A launch: ranks as in ``h0:1,h1:1``; `aux` lanes are started, 0: nothing is preloaded. `gloo`: by horovodrun, without MPI."""

    ranks: str
    aux: int
    over: str = "horovod"
    mca: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    build: Build = Build()
    warm_up: int = 1
    gloo: bool = False

    def command(self, *program: str) -> tuple[list[str], dict[str, str]]:
        """The words that start `program` on all ranks, and the variables the launcher needs."""
        if self.gloo:
            total = str(sum(int(host.split(":")[1]) for host in self.ranks.split(",")))
            words = ["horovodrun", "--gloo", "-np", total, "-H", self.ranks, "--network-interfaces", "e0"]
            return [*words, *program], {}
        counts = [int(host.split(":")[1]) for host in self.ranks.split(",")]
        words = ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(sum(counts)), "-H", self.ranks]
        for name, value in self.mca.items():
            words += ["--mca", name, value]
        variables = dict(self.variables)
        preload: tuple[str, ...] = ()
        if self.aux > 0:
            preload = (str(self.build.library),)
            variables |= {"FASTHVD_AUX": str(self.aux), "FASTHVD_LANE": str(self.build.program)}
            variables.setdefault("FASTHVD_TIMEOUT", "60")
        launch = prepare(
            [*words, *program], RankEnvironment(preload=preload, variables=variables), os.environ
        )
        changed = {name: value for name, value in launch.environment.items() if os.environ.get(name) != value}
        return launch.command, changed


@contextmanager
def lab(spec: LabSpec, say: Callable[[str], None]) -> Iterator[Lab]:
    """The lab of a case; its limits are said."""
    say(f"lab (emulated): {spec.describe()}")
    with (
        tempfile.TemporaryDirectory(prefix="vsketchdlc-bench-") as folder,
        Lab(spec, shared=[folder]) as place,
    ):
        place.bench_folder = Path(folder)  # type: ignore[attr-defined]
        yield place


def run(
    place: Lab, job: Job, blocks: Sequence[Block], on_pause: Callable[[], None] | None = None
) -> list[Timed]:
    """Run the blocks in one job; again when two big flows shared one of the lab's per-flow caps."""
    for _ in range(VOID_RUNS):
        place.forget_flows()
        timed = _run_once(place, job, blocks, on_pause)
        if not place.collisions():
            return timed
        print("  (void: two flows shared one per-flow cap; again)", file=sys.stderr)
    raise SystemExit(f"{VOID_RUNS} runs in a row were void: flows shared one per-flow cap of the lab")


def _run_once(
    place: Lab, job: Job, blocks: Sequence[Block], on_pause: Callable[[], None] | None
) -> list[Timed]:
    with tempfile.TemporaryDirectory(dir=place.bench_folder) as name:  # type: ignore[attr-defined]
        folder = Path(name)
        sign = folder / "pause"
        plan = {
            "over": job.over,
            "warm_up": job.warm_up,
            "results": str(folder),
            "pause_file": str(sign) if on_pause is not None else "",
            "blocks": [asdict(block) for block in blocks],
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        words, variables = job.command(sys.executable, str(RANK_PROGRAM), str(folder / "plan.json"))
        with place.start("h0", words, env=variables, stdout=sys.stderr) as process:
            try:
                if on_pause is not None:
                    _wait_for(process, sign.with_suffix(".here"))
                    on_pause()
                    sign.touch()
                status = process.wait(timeout=LIMIT_S)
            except BaseException:
                process.kill()
                process.wait()
                raise
        if status != 0:
            raise SystemExit(f"the job ended with status {status}: {' '.join(words)}")
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
    per_host = len(ranks) // len(job.ranks.split(","))
    return [
        _slowest(block, [rank[number] for rank in ranks], per_host) for number, block in enumerate(blocks)
    ]


def _wait_for(process: subprocess.Popen[str], sign: Path) -> None:
    while not sign.exists():
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        raise SystemExit("the job ended before its pause")


def _slowest(block: Block, ranks: list[dict[str, object]], per_host: int) -> Timed:
    call_s = [max(times) for times in zip(*(rank["call_s"] for rank in ranks), strict=True)]  # type: ignore[misc, call-overload]
    total_s = max(float(rank["total_s"]) for rank in ranks)  # type: ignore[arg-type]
    used = [float(rank["rank_cpu_s"]) * per_host + float(rank["lane_cpu_s"]) for rank in ranks]  # type: ignore[arg-type]
    threshold = int(ranks[0]["threshold_bytes"])  # type: ignore[call-overload]
    return Timed(block, call_s, total_s, max(used) / block.calls, threshold)


def by_variant(timed: Iterable[Timed]) -> dict[str, list[Timed]]:
    """The blocks of each variant, in the order they ran."""
    found: dict[str, list[Timed]] = {}
    for one in timed:
        found.setdefault(one.block.variant, []).append(one)
    return found


def bus_bits_per_s(size: int, hosts: int, seconds: float) -> float:
    """Payload bus bandwidth: 2 (H-1)/H of the vector crosses each host's wire once."""
    return 2 * (hosts - 1) / hosts * size * 8 / seconds
