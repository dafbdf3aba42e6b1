"""The axes of a what-if: how each option's text becomes numbers, and what one combination of them is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UserError
from ..units import parse_bits_per_s, parse_bytes, parse_seconds
from .calibration import Calibration
from .cluster import Cluster
from .cluster_file import load_cluster
from .lanes import MAX_AUX
from .scenario import Scenario
from .workload import Workload

MAX_SCENARIOS = 1_000_000
Reader = Callable[[str], float]


def parse_values(text: str, one: Reader, what: str) -> list[float]:
    """``"3"``, ``"2,4,8"``, or a range with both ends ``"0:8"`` or ``"0:8:2"``, each number read by `one`."""
    values: list[float] = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) == 1:
            values.append(one(ends[0]))
        elif len(ends) in (2, 3):
            low, high = one(ends[0]), one(ends[1])
            step = one(ends[2]) if len(ends) == 3 else one("1")
            if step <= 0 or high < low or (high - low) / step > MAX_SCENARIOS:
                raise UserError(
                    f"{what} '{part}': a range is LOW:HIGH or LOW:HIGH:STEP with LOW <= HIGH and STEP above 0"
                )
            values += [low + number * step for number in range(math.floor((high - low) / step + 1e-9) + 1)]
        else:
            raise UserError(f"{what} '{part}': write a value, a list 2,4,8 or a range 0:8")
    return list(dict.fromkeys(values))


def whole(what: str, low: int, high: int) -> Reader:
    """A reader of whole numbers between `low` and `high`."""

    def read(text: str) -> float:
        try:
            value = int(text)
        except ValueError:
            raise UserError(
                f"{what} '{text}' is not a whole number; it must lie between {low} and {high}"
            ) from None
        return _within(value, what, low, high)

    return read


def number(what: str, low: float, high: float) -> Reader:
    """A reader of numbers between `low` and `high`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise UserError(
                f"{what} '{text}' is not a number; it must lie between {low:g} and {high:g}"
            ) from None
        return _within(value, what, low, high)

    return read


def _within(value: float, what: str, low: float, high: float) -> float:
    if not (math.isfinite(value) and low <= value <= high):
        raise UserError(f"{what} is {value:g}; it must lie between {low:g} and {high:g}")
    return value


def _yes_or_no(text: str) -> float:
    if text.strip() not in ("yes", "no"):
        raise UserError(f"fp16 '{text}' is neither yes nor no; write --fp16 yes, or --fp16 no,yes for both")
    return float(text.strip() == "yes")


def _flow_cap(text: str) -> float:
    if text.strip() in ("none", "inf"):
        return math.inf
    return _within(parse_bits_per_s(text, what="flow cap"), "flow cap in bit/s", 1e3, 1e14)


READERS: dict[str, Reader] = {
    "hosts": whole("hosts", 1, 65536),
    "ranks_per_host": whole("ranks per host", 1, 1024),
    "cores": number("cores", 0.001, 4096),
    "core_speed": number("core speed", 0.001, 1000),
    "nic_bits_per_s": lambda text: _within(
        parse_bits_per_s(text, what="NIC rate"), "NIC rate in bit/s", 1e3, 1e14
    ),
    "flow_cap_bits_per_s": _flow_cap,
    "rtt_s": lambda text: _within(parse_seconds(text, "ms", "rtt"), "rtt in s", 0.0, 10.0),
    "oversubscription": number("oversubscription", 1.0, 1e4),
    "batch": whole("batch", 1, 1_000_000),
    "fusion_bytes": lambda text: _within(
        parse_bytes(text, "MiB", "fusion threshold"), "fusion threshold in bytes", 0, 2**40
    ),
    "cycle_s": lambda text: _within(parse_seconds(text, "ms", "cycle time"), "cycle time in s", 0.0, 10.0),
    "fp16": _yes_or_no,
}


def read_aux(text: str) -> list[int]:
    """Lane counts from the command line, sorted."""
    return sorted({int(value) for value in parse_values(text, whole("aux", 0, MAX_AUX), "aux")})


@dataclass(frozen=True)
class Setting:
    """One place to run: everything of a scenario but the lane count.

    ``oversubscription`` above 1 puts hosts into racks of ``hosts_per_rack``. ``fp16`` sends half the bytes. A
    ``cluster_file`` decides all about hosts and network; the fields then repeat what it says of its first host. ``model``
    names the workload where several are asked about.
    """

    hosts: int
    ranks_per_host: int
    cores: float
    core_speed: float
    nic_bits_per_s: float
    flow_cap_bits_per_s: float
    rtt_s: float
    oversubscription: float
    batch: int
    fusion_bytes: int
    cycle_s: float
    fp16: bool = False
    hosts_per_rack: int = 16
    cluster_file: str | None = None
    model: str = ""

    def cluster(self) -> Cluster:
        """The star, or the racks, of this setting, or what its file says."""
        if self.cluster_file is not None:
            return load_cluster(self.cluster_file)
        star: dict[str, Any] = {
            "ranks_per_host": self.ranks_per_host,
            "cores": self.cores,
            "speed": self.core_speed,
            "nic_bits_per_s": self.nic_bits_per_s,
            "flow_cap_bits_per_s": self.flow_cap_bits_per_s,
            "latency_s": self.rtt_s / 2,
        }
        if self.oversubscription > 1 and self.hosts > self.hosts_per_rack:
            return Cluster.two_tier(self.hosts, self.hosts_per_rack, self.oversubscription, **star)
        return Cluster.star(self.hosts, **star)

    def scenario(self, workload: Workload, calibration: Calibration, aux: int) -> Scenario:
        """The scenario with `aux` lanes."""
        if self.batch != workload.batch_per_rank:
            workload = workload.scaled(batch_per_rank=self.batch)
        if self.fp16:
            workload = workload.scaled(dtype_bytes=2)
        return Scenario(
            workload,
            self.cluster(),
            calibration,
            aux=aux,
            fusion_bytes=self.fusion_bytes,
            cycle_s=self.cycle_s,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; an unlimited flow cap is null."""
        values = asdict(self)
        if math.isinf(self.flow_cap_bits_per_s):
            values["flow_cap_bits_per_s"] = None
        return values


def settings_of(
    axes: Mapping[str, Sequence[float]],
    *,
    hosts_per_rack: int = 16,
    cluster_file: str | None = None,
    model: str = "",
) -> list[Setting]:
    """The product of the axes, each named as a field of `Setting`; the last axes vary fastest."""
    names = [name for name in Setting.__dataclass_fields__ if name in axes]
    kinds: dict[str, Callable[[float], float]] = {
        **dict.fromkeys(("hosts", "ranks_per_host", "batch", "fusion_bytes"), int),
        "fp16": bool,
    }
    settings = []
    for row in itertools.product(*(axes[name] for name in names)):
        values: dict[str, Any] = {
            name: kinds.get(name, float)(value) for name, value in zip(names, row, strict=True)
        }
        settings.append(
            Setting(**values, hosts_per_rack=hosts_per_rack, cluster_file=cluster_file, model=model)
        )
    return settings
