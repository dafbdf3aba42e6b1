"""``--set key=value``: any knob, cluster, workload or calibration field of a replay, by its name in JSON.

A value may carry its unit (``flow_cap_bits_per_s=2Gbit/s``, ``cycle_s=5ms``); a bare number is in the unit that the
key's name ends with.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import UserError
from ..model.calibration import Fitted
from ..model.cluster import Cluster
from ..model.parameters import INFO
from ..model.scenario import Scenario
from ..units import parse_bits_per_s, parse_bytes, parse_seconds

KNOBS = ("aux", "fusion_bytes", "cycle_s", "chunk_bytes", "lane_threshold_bytes", "cached")
CLUSTER = (
    "hosts",
    "ranks_per_host",
    "cores",
    "speed",
    "nic_bits_per_s",
    "flow_cap_bits_per_s",
    "latency_s",
    "memory_bytes_per_s",
    "window_bytes",
    "loss",
)
WORKLOAD = (
    "forward_s",
    "backward_s",
    "update_s",
    "overhead_s",
    "update_group",
    "device",
    "cpu_share",
    "blocking",
    "loader_cpu_s",
    "loader_threads",
)
CALIBRATION = (*INFO, "model_error")
_WHOLE = ("aux", "hosts", "ranks_per_host", "update_group", "loader_threads")
_YES_NO = ("cached", "blocking")


def with_settings(scenario: Scenario, texts: Sequence[str]) -> Scenario:
    """`scenario` with each ``key=value`` of `texts`. Raises UserError naming the known keys for an unknown one."""
    values = dict(_parsed(text) for text in texts)
    chosen = {name: values[name] for name in KNOBS if name in values}
    changed = scenario.replaced(
        **chosen,
        workload=_workload(scenario, {name: values[name] for name in WORKLOAD if name in values}),
        cluster=_cluster(scenario.cluster, {name: values[name] for name in CLUSTER if name in values}),
    )
    calibration = changed.calibration
    for name in CALIBRATION:
        if name in values:
            _above_0(name, values[name])
            if name == "model_error":
                calibration = dataclasses.replace(calibration, model_error=values[name])
            else:
                value = values[name]
                entry = Fitted(value, INFO[name].unit, value, value, False, "--set")
                calibration = dataclasses.replace(calibration, entries={**calibration.entries, name: entry})
    return changed.replaced(calibration=calibration)


def _parsed(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip()
    known = (*KNOBS, *CLUSTER, *WORKLOAD, *CALIBRATION)
    if not equals:
        raise UserError(
            f"--set '{text}' is not understood: write key=value, like flow_cap_bits_per_s=2Gbit/s"
        )
    if key not in known:
        raise UserError(f"--set knows no '{key}'; it knows {', '.join(known)}")
    return key, _reader(key)(value.strip())


def _reader(key: str) -> Callable[[str], Any]:
    what = f"--set {key}"
    if key == "device":
        return _device
    if key in _YES_NO:
        return lambda text: _yes_no(what, text)
    if key.endswith("_bits_per_s"):
        return lambda text: math.inf if text == "none" else parse_bits_per_s(text, "bit/s", what)
    if key.endswith("_s"):
        return lambda text: parse_seconds(text, what=what)
    if key.endswith("_bytes"):
        return lambda text: parse_bytes(text, what=what)
    return lambda text: _number(what, text, whole=key in _WHOLE)


def _number(what: str, text: str, *, whole: bool) -> float | int:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{what} '{text}' is not understood: write a {'whole ' if whole else ''}number")
    return value


def _yes_no(what: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise UserError(f"{what} '{text}' is not understood: write true or false")
    return text.lower() in ("true", "1", "yes")


def _device(text: str) -> str:
    if text not in ("cpu", "gpu"):
        raise UserError(f"--set device '{text}' is not understood: write cpu or gpu")
    return text


def _above_0(name: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"--set {name} is {value:g}; it must be above 0")


def _workload(scenario: Scenario, values: dict[str, Any]) -> Any:
    if not values:
        return scenario.workload
    work = scenario.workload
    if "backward_s" in values and work.backward_s > 0:
        factor = values["backward_s"] / work.backward_s
        tensors = tuple(dataclasses.replace(t, ready_s=t.ready_s * factor) for t in work.tensors)
        values = {**values, "tensors": tensors}
    return dataclasses.replace(work, **values)


def _cluster(cluster: Cluster, values: dict[str, Any]) -> Cluster:
    """A star like `cluster` with some things changed; a cluster that is no star keeps its shape."""
    if not values:
        return cluster
    first = cluster.hosts[0]
    now: dict[str, Any] = {
        "hosts": len(cluster.hosts),
        "ranks_per_host": first.ranks,
        "cores": first.cores,
        "speed": first.speed,
        "nic_bits_per_s": cluster.nic_bits_per_s(first.name),
        "flow_cap_bits_per_s": cluster.flow_cap_bits_per_s,
        "latency_s": cluster.worst_latency_s,
        "memory_bytes_per_s": first.memory_bytes_per_s,
        "window_bytes": cluster.window_bytes,
        "loss": cluster.loss,
    }
    return Cluster.star(**{**now, **values})
