"""A cluster from a TOML file: any hosts, switches and links, slow hosts and busy links included.

::

    flow_cap = "5 Gbit/s"           # optional, as are window = "3 MB", loss = 0.0
    lane_caps = ["1 Gbit/s"]        # and slower flows of the first lanes

    [hosts]
    a = { cores = 16, ranks = 1 }
    b = { cores = 16, ranks = 1, speed = 0.8 }   # a slow host

    [switches]
    rack = {}

    [[links]]
    between = ["a", "rack"]
    rate = "25 Gbit/s"
    latency = "10 us"

    [[links]]
    between = ["b", "rack"]
    rate = "25 Gbit/s"
    background = "10 Gbit/s"        # what others use of it
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import networkx as nx

from ..errors import UserError
from ..units import parse_bits_per_s, parse_bytes, parse_seconds
from .cluster import DEFAULT_WINDOW_BYTES, Cluster, Host
from .lanes import MAX_AUX

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TOP = {"flow_cap", "lane_caps", "window", "loss", "hosts", "switches", "links"}
_HOST = {"cores", "speed", "ranks", "memory"}
_LINK = {"between", "rate", "latency", "background"}
_LATENCY_S = 25e-6


def load_cluster(path: str | Path) -> Cluster:
    """Read the cluster in file `path`; raises UserError that names the field and what it must be."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read cluster {path}: {error}") from None
    _known(data, _TOP, str(path))
    graph: nx.Graph = nx.Graph()
    for name, fields in _table(data, "hosts", path).items():
        graph.add_node(name, kind="host", host=_host(name, fields))
    for name in _table(data, "switches", path):
        graph.add_node(name, kind="switch")
    links = data.get("links", [])
    if not isinstance(links, list) or not all(isinstance(link, dict) for link in links):
        raise UserError(f'{path}: links are written as [[links]] with between = ["one", "other"] and a rate')
    for link in links:
        _add_link(graph, link)
    cap = data.get("flow_cap", "none")
    flow_cap = math.inf if cap == "none" else parse_bits_per_s(str(cap), what="flow_cap")
    window = (
        float(parse_bytes(str(data["window"]), what="window")) if "window" in data else DEFAULT_WINDOW_BYTES
    )
    loss = _number(data.get("loss", 0.0), "loss", 0.0, 0.999)
    return Cluster(graph, flow_cap, window, loss, _lane_caps(data.get("lane_caps", []))).checked()


def _lane_caps(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or len(values) > MAX_AUX:
        raise UserError(
            f'lane_caps is {values}; it must be a list of up to {MAX_AUX} rates, as ["1 Gbit/s", "5 Gbit/s"]'
        )
    return tuple(parse_bits_per_s(str(value), what="lane_caps") for value in values)


def _host(name: str, fields: dict[str, Any]) -> Host:
    _known(fields, _HOST, f"host {name}")
    memory = math.inf
    if "memory" in fields:
        memory = float(parse_bytes(str(fields["memory"]).removesuffix("/s"), "GB", f"host {name}: memory"))
    ranks = _number(fields.get("ranks", 1), f"host {name}: ranks", 1, 1024)
    if ranks != int(ranks):
        raise UserError(f"host {name}: ranks is {ranks}; it must be a whole number")
    return Host(
        name,
        cores=_number(fields.get("cores", 8), f"host {name}: cores", 1e-3, 4096),
        speed=_number(fields.get("speed", 1.0), f"host {name}: speed", 1e-3, 1e3),
        ranks=int(ranks),
        memory_bytes_per_s=memory,
    )


def _add_link(graph: nx.Graph, link: dict[str, Any]) -> None:
    _known(link, _LINK, "a link")
    ends = link.get("between")
    if not isinstance(ends, list) or len(ends) != 2:
        raise UserError('a link needs between = ["one", "other"]')
    for end in ends:
        if end not in graph:
            raise UserError(f"link between {ends[0]} and {ends[1]}: there is no host or switch '{end}'")
    what = f"link between {ends[0]} and {ends[1]}"
    rate = parse_bits_per_s(str(link.get("rate", "")), what=f"{what}: rate")
    background = parse_bits_per_s(str(link.get("background", "0")), what=f"{what}: background")
    latency = parse_seconds(str(link.get("latency", f"{_LATENCY_S} s")), "ms", f"{what}: latency")
    if rate <= 0 or not 0 <= background < rate or latency < 0:
        raise UserError(f"{what}: rate must be above 0, background from 0 to below it, latency 0 or more")
    graph.add_edge(*ends, bits_per_s=rate, latency_s=latency, background_bits_per_s=background)


def _table(data: dict[str, Any], name: str, path: str | Path) -> dict[str, dict[str, Any]]:
    table = data.get(name, {})
    if not isinstance(table, dict) or not all(isinstance(value, dict) for value in table.values()):
        raise UserError(f"{path}: [{name}] must be a table of tables, as h0 = {{ cores = 8 }}")
    return table


def _known(data: dict[str, Any], known: set[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise UserError(f"{where}: '{key}' is not known; use {', '.join(sorted(known))}")


def _number(value: Any, what: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(f"{what} is {value}; it must lie between {low:g} and {high:g}")
    return float(value)
