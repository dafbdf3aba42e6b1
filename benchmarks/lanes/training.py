"""AlexNet and VGG16 trained for real: step times against stock, one lane, and the bound without overlap."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from vsketchdlc.validation.lab import Lab, LabSpec

from .jobs import Job, lab
from .rows import Row, middle, ratio

PROGRAM = Path(__file__).with_name("training_rank.py")
NIC, CAP = 4e9, 1e9
LIMIT_S = 400.0
#: Images per rank. Four VGG16 ranks on two cores: one image is enough compute.
BATCH = {"alexnet": 4, "vgg16": 1}
LANES = (0, 1, 4, 5)
SHARE_OF_BOUND, AGAINST_STOCK = 0.85, 1.8


def training(quick: bool, say: Callable[[str], None]) -> Iterator[Row]:
    """Every lane count in turns within one job; the slowest rank's time of every step."""
    cases = (("alexnet", 2),) if quick else (("alexnet", 2), ("alexnet", 4), ("vgg16", 2), ("vgg16", 4))
    for model, hosts in cases:
        rounds = 1 if quick else 4 if model == "alexnet" else 2
        cores = sorted(os.sched_getaffinity(0))
        own = {f"h{number}": {"cpus": (cores[number % len(cores)],)} for number in range(hosts)}
        spec = LabSpec(hosts=hosts, nic_bits_per_s=NIC, flow_cap_bits_per_s=CAP, overrides=own)
        with lab(spec, say) as place:
            times, gradient_bytes = _train(place, hosts, model, rounds)
        case = f"{model} batch {BATCH[model]}, H={hosts}, NIC 4, cap 1 ({gradient_bytes / 1e6:.0f} MB)"
        yield from _rows(case, times)


def _train(place: Lab, hosts: int, model: str, rounds: int) -> tuple[dict[str, list[float]], int]:
    with tempfile.TemporaryDirectory(dir=place.bench_folder) as name:  # type: ignore[attr-defined]
        folder = Path(name)
        plan = {
            "model": model,
            "batch": BATCH[model],
            "lanes": LANES,
            "rounds": rounds,
            "wire_lanes": max(LANES),
            "results": name,
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        job = Job(",".join(f"h{number}:1" for number in range(hosts)), max(LANES))
        words, variables = job.command(sys.executable, str(PROGRAM), str(folder / "plan.json"))
        done = place.run("h0", words, env=variables, stdout=sys.stderr, timeout=LIMIT_S)
        if done.returncode != 0:
            raise SystemExit(f"the training ended with status {done.returncode}")
        if place.collisions():
            print(
                "  (two flows shared one per-flow cap: read the lanes' figures as too slow)", file=sys.stderr
            )
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
    slowest = {
        name: [max(times) for times in zip(*(rank["times"][name] for rank in ranks), strict=True)]
        for name in ranks[0]["times"]
    }
    return slowest, int(ranks[0]["gradient_bytes"])


def _rows(case: str, times: dict[str, list[float]]) -> Iterator[Row]:
    names = {count: "stock" if count == 0 else f"k={count}" for count in LANES}
    for count, name in names.items():
        yield middle(case, f"{name}: step", times[f"step {count}"], "s", "lower")
    compute, m_cap, m_nic = (median(times[name]) for name in ("compute", "wire 1", f"wire {max(LANES)}"))
    for name, value in (
        ("C: step without exchange", compute),
        ("M at the cap", m_cap),
        ("M at the NIC", m_nic),
    ):
        yield Row(case, name, value, "s", "lower", None, len(times["compute"]))
    bound = (compute + m_cap) / (compute + m_nic)
    yield Row(case, "bound without overlap", bound, "x", "higher")
    best = min((count for count in LANES if count > 0), key=lambda count: median(times[f"step {count}"]))
    gain = ratio(
        case, f"k={best} against stock", times["step 0"], times[f"step {best}"], "higher", AGAINST_STOCK
    )
    yield gain
    yield Row(
        case,
        f"k={best} against stock, share of bound",
        gain.value / bound,
        "x",
        "higher",
        SHARE_OF_BOUND,
        gain.runs,
    )
    yield ratio(case, "k=1 against stock", times["step 0"], times["step 1"], "higher")
    yield ratio(case, f"k={best} against k=1", times["step 1"], times[f"step {best}"], "higher")
