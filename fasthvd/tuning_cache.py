"""Earlier tunings, found again by the cluster and the job they are of.

The cluster is what the ranks say of their hosts (names, cores, interfaces); the job is the launch command, the
code and settings in the files it names and the Python files beside its script, and the settings of Horovod, MXNet and MPI
in the environment. The network may have changed all the same: an entry holds the rates of the flow probe, and
counts only while a new probe agrees.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..answer import write_text_whole
from ..errors import UserError
from ..units import format_bits_per_s
from .flow_probe import FlowProbe
from .tuning_answer import TuningAnswer

AGREES = 0.2
"""Rates of two probes may differ by that share."""
_PREFIXES = ("HOROVOD_", "MXNET_", "OMP_", "OMPI_MCA_", "FASTHVD_")
_NOT_OF_THE_JOB = ("OMPI_MCA_mca_base_env_list",)
_CODE = (".py", ".sh", ".toml", ".yaml", ".yml", ".cfg", ".ini")
"""Files that a command names may also be its output: only these tell what the job is."""
_FILE_BYTES = 4 << 20
_FILES = 200


@dataclass(frozen=True)
class Entry:
    """One earlier tuning: when it was made (for the user), the probe's rates by flow count, the answer."""

    made: str
    rates: dict[int, float]
    answer: TuningAnswer

    def disagreement(self, probe: FlowProbe) -> str | None:
        """The first rate that is not what it was, in half a sentence; None when `probe` agrees."""
        for rate in probe.rates:
            before = self.rates.get(rate.flows)
            if before is None or abs(rate.bits_per_s / before - 1) > AGREES:
                was = "was not probed" if before is None else f"got {format_bits_per_s(before)}"
                flows = f"{rate.flows} flow{'s' if rate.flows > 1 else ''}"
                return f"{flows} {was} then, {format_bits_per_s(rate.bits_per_s)} now"
        return None


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where tunings are kept: below XDG_CACHE_HOME, else below ~/.cache."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vsketchdlc" / "tuning"


def fingerprint(
    command: Sequence[str],
    probe: FlowProbe,
    wishes: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Name of the entry for this job on this cluster with these options of `tune`."""
    hasher = hashlib.sha256()
    hosts = [facts.to_json() for facts in probe.ranks]
    settings = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and name not in _NOT_OF_THE_JOB
    }
    for part in (__version__, list(command), hosts, dict(wishes), settings):
        hasher.update(json.dumps(part, sort_keys=True).encode() + b"\0")
    for file in _files(command):
        hasher.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return hasher.hexdigest()[:32]


def _files(command: Sequence[str]) -> Iterator[Path]:
    """Files the command names, and the Python files beside its script."""
    for word in command[1:]:
        file = Path(word)
        try:
            if file.suffix not in _CODE or not file.is_file() or file.stat().st_size > _FILE_BYTES:
                continue
        except OSError:
            continue  # too long for a file's name
        yield file
        if file.suffix == ".py":
            beside = sorted(file.parent.glob("*.py"))[:_FILES]
            yield from (one for one in beside if one != file and one.stat().st_size <= _FILE_BYTES)


def load(name: str, environment: Mapping[str, str] = os.environ) -> Entry | None:
    """The entry of that name; None where there is none or it cannot be read (it is then made again)."""
    try:
        data = json.loads((cache_folder(environment) / f"{name}.json").read_text(encoding="utf-8"))
        rates = {int(flows): float(rate) for flows, rate in data["rates"].items()}
        return Entry(data["made"], rates, TuningAnswer.from_json(data["answer"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):
        return None


def save(
    name: str, made: str, probe: FlowProbe, answer: TuningAnswer, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Keep an entry; a sentence when that is not possible: a tuning is not lost for want of a cache."""
    folder = cache_folder(environment)
    data = {
        "made": made,
        "rates": {rate.flows: rate.bits_per_s for rate in probe.rates},
        "answer": answer.to_json(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text_whole(folder / f"{name}.json", json.dumps(data, indent=1) + "\n")
    except (OSError, UserError) as error:
        return f"the tuning is not kept for the next time: {error}"
    return None
