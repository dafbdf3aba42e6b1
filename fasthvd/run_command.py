"""The ``run`` command: the user's own launch command, with lanes below its Horovod."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from ..errors import UserError
from ..units import parse_bytes, parse_seconds


def run(
    command: Annotated[
        list[str] | None, typer.Argument(help="Your own launch command, after '--'.", metavar="-- CMD...")
    ] = None,
    aux: Annotated[int, typer.Option(help="Lanes per host; 0 is stock Horovod.", envvar="FASTHVD_AUX")] = 1,
    timeout: Annotated[
        str, typer.Option(help="Limit for a silent flow once all hosts are there.", envvar="FASTHVD_TIMEOUT")
    ] = "60s",
    ports: Annotated[
        str | None, typer.Option(help="Listen on ports A:B only.", metavar="A:B", envvar="FASTHVD_PORTS")
    ] = None,
    iface: Annotated[
        str, typer.Option(help="Interfaces or networks, e.g. eth0,eth1.", envvar="FASTHVD_IFACE")
    ] = "",
    chunk: Annotated[
        str | None, typer.Option(help="Bytes a lane sends at once.", envvar="FASTHVD_CHUNK_BYTES")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(help="Smaller allreduces stay on MPI.", envvar="FASTHVD_THRESHOLD_BYTES"),
    ] = None,
    fusion_threshold_mb: Annotated[
        float | None, typer.Option(help="Horovod's fusion threshold, in every rank.")
    ] = None,
    cycle_time_ms: Annotated[float | None, typer.Option(help="Horovod's cycle time, in every rank.")] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Print the lanes' counters at the end.", envvar="FASTHVD_STATS")
    ] = False,
    json: Annotated[
        str | None,
        typer.Option("--json", help="Write the counters to FILE, or - for stdout.", envvar="FASTHVD_JSON"),
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="Lanes stay on the cores of their rank.", envvar="FASTHVD_PIN")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="No warnings and advice, only errors.", envvar="FASTHVD_QUIET"),
    ] = False,
    print_env: Annotated[
        bool, typer.Option("--print-env", help="Print what to export for srun or Kubernetes.")
    ] = False,
) -> int:
    """Run your command with K auxiliary communication processes (lanes) on every host.

    Example: vsketchdlc run --aux 3 -- mpirun -np 4 -H a,b,c,d python train.py
    """
    from ..tracer.launcher import RankEnvironment
    from .horovod_settings import HorovodSettings
    from .settings import LIBRARY, LaneSettings, lanes_above_cores, parse_ports, require_native
    from .supervised import run_stock, run_supervised

    settings = LaneSettings(
        aux=aux,
        timeout_s=parse_seconds(timeout, what="--timeout"),
        ports=None if ports is None else parse_ports(ports),
        iface=iface,
        chunk_bytes=None if chunk is None else parse_bytes(chunk, what="--chunk"),
        threshold_bytes=None if threshold is None else parse_bytes(threshold, what="--threshold"),
        stats=stats,
        pin=pin,
        json=json,
        quiet=quiet,
    )
    horovod = HorovodSettings(fusion_threshold_mb, cycle_time_ms).variables()
    ranks = RankEnvironment(variables=horovod)
    if settings.preloads:
        require_native()
        ranks = RankEnvironment(preload=(str(LIBRARY),), variables={**horovod, **settings.variables()})
    if print_env:
        for name, value in ranks.flat(os.environ).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    if not command:
        raise UserError(
            "no command given: put your own after '--', as in 'vsketchdlc run --aux 3 -- mpirun ...'"
        )
    sys.stdout.flush()
    if not settings.preloads:
        run_stock(command, ranks)
    warning = lanes_above_cores(aux, len(os.sched_getaffinity(0)))
    if warning and not quiet:
        print(f"vsketchdlc: {warning}", file=sys.stderr)
    return run_supervised(command, ranks, settings)
