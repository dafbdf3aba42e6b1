"""What each rank does in a flow probe: it reports its host, and moves bytes to the next host when told to.

No MPI is needed: the ranks talk to the launcher's side (`flow_probe`) over one TCP connection of JSON lines.
Messages to it: ``hello`` (who, facts, port), ``ready``, ``moved``, ``failed``; from it: ``flows``, ``go``, ``end``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import asdict
from typing import IO, Any

from .flow_sockets import accept_all, close_all, connect_all, listener, move
from .host_facts import HostFacts, chosen_addresses

PLAN_VARIABLE = "FASTHVD_FLOW_PROBE"
MPI_INTERFACES = "OMPI_MCA_btl_tcp_if_include"
_PATIENCE_S = 60.0


def main() -> None:
    """Do what the coordinator in FASTHVD_FLOW_PROBE (JSON: addresses, port, token, iface) asks for."""
    text = os.environ.get(PLAN_VARIABLE)
    if not text:
        sys.exit("vsketchdlc: this program is started by 'vsketchdlc doctor --probe' or 'tune', not by hand")
    plan = json.loads(text)
    with _reached(plan["addresses"], plan["port"]) as wire, listener() as server:
        facts = HostFacts.here()
        lines = wire.makefile("rw", encoding="utf-8", newline="\n")
        wanted = plan["iface"] or os.environ.get(MPI_INTERFACES, "")
        hello = {
            "rank": _number("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", default=0),
            "size": _number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", default=1),
            "facts": facts.to_json(),
            # Ranks of a host without a network are reached from the same machine only.
            "addresses": chosen_addresses(facts.interfaces, wanted) or ["127.0.0.1"],
            "port": server.getsockname()[1],
        }
        lines.write(plan["token"] + "\n")
        _say(lines, what="hello", **hello)
        for line in lines:
            order = json.loads(line)
            if order["what"] == "end":
                return
            _flows(lines, server, order)


def _flows(lines: IO[str], server: socket.socket, order: dict[str, Any]) -> None:
    """One measurement: connect, be accepted, wait for all others, move, report."""
    token, flows = order["token"], order["flows"]
    try:
        out = connect_all(order["addresses"], order["port"], token, flows)
    except OSError as error:
        _say(lines, what="failed", why=f"cannot connect to {error}")
        return
    try:
        into = accept_all(server, token, flows)
    except OSError as error:
        close_all(out)
        _say(lines, what="failed", why=f"nobody connected ({error})")
        return
    _say(lines, what="ready")
    if json.loads(lines.readline())["what"] != "go":
        close_all([*out, *into])
        return
    _say(
        lines,
        what="moved",
        **asdict(move(out, into, settle_s=order["settle_s"], seconds=order["seconds"])),
    )


def _reached(addresses: list[str], port: int) -> socket.socket:
    """A connection to the launcher's side, by the first of its addresses that answers."""
    for address in addresses:
        try:
            found = socket.create_connection((address, port), timeout=5)
        except OSError:
            continue
        found.settimeout(_PATIENCE_S)
        return found
    sys.exit(
        f"vsketchdlc: host {socket.gethostname()} cannot reach the launching host at {', '.join(addresses)} port {port}"
    )


def _say(lines: IO[str], **message: Any) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def _number(*names: str, default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


if __name__ == "__main__":
    main()
