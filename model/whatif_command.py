"""``vsketchdlc whatif``: predict step times that were never run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .calibration import Calibration
    from .whatif import Answer, Grid
    from .workload import Workload


def whatif_command(
    trace: Annotated[Path | None, typer.Argument(help="Folder of a recorded trace.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Catalogue network instead of a trace, or several: a,b.")
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="Device of --model: k80, p100, v100.")] = "v100",
    calibration: Annotated[Path | None, typer.Option("--calibration", help="From 'calibrate'.")] = None,
    probe: Annotated[Path | None, typer.Option("--probe", help="Lane probe to calibrate with.")] = None,
    aux: Annotated[str, typer.Option("--aux", help="Lanes per host: 3, 0,2,4 or 0:8.")] = "0:8",
    hosts: Annotated[str | None, typer.Option("--hosts", help="Hosts.")] = None,
    ranks_per_host: Annotated[
        str | None, typer.Option("--ranks-per-host", help="Ranks on each host.")
    ] = None,
    nic: Annotated[str | None, typer.Option("--nic", help="NIC rate, Gbit/s unless a unit follows.")] = None,
    flow_cap: Annotated[
        str | None, typer.Option("--flow-cap", help="Cap of one TCP flow; none: no cap.")
    ] = None,
    rtt: Annotated[str | None, typer.Option("--rtt", help="Round trip, ms unless a unit follows.")] = None,
    cores: Annotated[str | None, typer.Option("--cores", help="Cores of a host for the job.")] = None,
    core_speed: Annotated[
        str | None, typer.Option("--core-speed", help="Speed of a core; 1: as calibrated.")
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Samples per rank and step.")] = None,
    fusion: Annotated[
        str | None, typer.Option("--fusion-mb", help="Horovod's fusion threshold, MiB.")
    ] = None,
    cycle: Annotated[str | None, typer.Option("--cycle-ms", help="Horovod's cycle time, ms.")] = None,
    oversubscription: Annotated[
        str | None, typer.Option("--oversubscription", help="NICs of a rack over its uplink; 1: none.")
    ] = None,
    hosts_per_rack: Annotated[int, typer.Option("--hosts-per-rack", help="With --oversubscription.")] = 16,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="TOML file with hosts, switches, links.")
    ] = None,
    fp16: Annotated[
        str | None, typer.Option("--fp16", help="Gradients as fp16, half the bytes: yes, no or no,yes.")
    ] = None,
    best: Annotated[
        str | None, typer.Option("--best", help="Show only the best value of AXIS (aux, nic ...).")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="What is needed for this scaling, e.g. 90%.")
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", help="Price of a host-hour: adds cost per epoch.")
    ] = None,
    epoch: Annotated[int, typer.Option("--epoch", help="Samples of an epoch, for --price.")] = 1_281_167,
    min_gain: Annotated[float, typer.Option("--min-gain", help="Least gain worth a lane (share).")] = 0.02,
    sweep: Annotated[
        Path | None, typer.Option("--sweep", help="Folder of a sweep: streams, and resumes.")
    ] = None,
    dask: Annotated[str | None, typer.Option("--dask", help="With --sweep: 'local' or a scheduler.")] = None,
    json_target: Annotated[str | None, typer.Option("--json", help="JSON to FILE, or - for stdout.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="One row a prediction.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Page with plots.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Predict step times you never ran: other lane counts, networks, hosts.

    Example: vsketchdlc whatif trace/ --aux 0:8 --nic 10,25,100

    Example: vsketchdlc whatif --model vgg16 --hosts 2,4,8 --nic 25 --flow-cap 5
    """
    from ..errors import UserError
    from .axes import read_aux, settings_of
    from .whatif import Grid
    from .whatif_output import Wanted, show, show_target

    if (trace is None) == (model is None):
        raise UserError(
            "give a trace folder or --model NAME: vsketchdlc whatif trace/ or whatif --model alexnet"
        )
    if dask is not None and sweep is None:
        raise UserError("--dask needs --sweep FOLDER, where the results stream to")
    if price is not None and not price >= 0:
        raise UserError(f"price is {price}; it must be 0 or more")
    if epoch < 1:
        raise UserError(f"epoch is {epoch} samples; it must be 1 or more")
    if not 0 <= min_gain < 1:
        raise UserError(f"min-gain is {min_gain}; it must be a share from 0 to below 1")
    if hosts_per_rack < 1:
        raise UserError(f"hosts-per-rack is {hosts_per_rack}; it must be 1 or more")
    counts = read_aux(aux)
    works, costs, knobs = _subject(trace, model, gpu, calibration, probe)
    several = works if len(works) > 1 else {}
    texts = {
        "hosts": hosts,
        "ranks_per_host": ranks_per_host,
        "cores": cores,
        "core_speed": core_speed,
        "nic_bits_per_s": nic,
        "flow_cap_bits_per_s": flow_cap,
        "rtt_s": rtt,
        "oversubscription": oversubscription,
        "batch": batch,
        "fusion_bytes": fusion,
        "cycle_s": cycle,
        "fp16": fp16,
    }
    if cluster is not None:
        _only_the_file(texts)
    settings = []
    for name, work in works.items():
        settings += settings_of(
            _axes(texts, work, costs, knobs, cluster),
            hosts_per_rack=hosts_per_rack,
            cluster_file=str(cluster) if cluster else None,
            model=name if several else "",
        )
    grid = Grid(next(iter(works.values())), costs, counts, settings, min_gain, sweep is None, several)
    wanted = Wanted(json_target, csv, html, best, price, epoch, quiet)
    if target is not None:
        show_target(grid, target, wanted)
    elif sweep is not None:
        _sweep(grid, sweep, dask, wanted)
    else:
        show(grid, _with_progress(grid, quiet), wanted)


def _only_the_file(texts: dict[str, str | None]) -> None:
    from ..errors import UserError

    said = (
        "hosts",
        "ranks_per_host",
        "cores",
        "core_speed",
        "nic_bits_per_s",
        "flow_cap_bits_per_s",
        "rtt_s",
        "oversubscription",
    )
    for name in said:
        if texts[name] is not None:
            raise UserError(
                f"--cluster says all about hosts and network: leave --{name.split('_bits')[0].replace('_', '-')} out"
            )


def _axes(
    texts: dict[str, str | None],
    work: Workload,
    costs: Calibration,
    knobs: dict[str, Any],
    cluster: Path | None,
) -> dict[str, list[float]]:
    """Values of every axis: what was asked for, else as recorded or calibrated."""
    from .axes import READERS, parse_values
    from .cluster_file import load_cluster
    from .fusion import DEFAULT_THRESHOLD_BYTES
    from .horovod import DEFAULT_CYCLE_S

    here = costs.cluster() if cluster is None else load_cluster(cluster)
    defaults = {
        "hosts": len(here.hosts),
        "ranks_per_host": here.hosts[0].ranks,
        "cores": here.hosts[0].cores,
        "core_speed": here.hosts[0].speed,
        "nic_bits_per_s": here.nic_bits_per_s(here.hosts[0].name),
        "flow_cap_bits_per_s": here.flow_cap_bits_per_s,
        "rtt_s": 2 * here.worst_latency_s,
        "oversubscription": 1.0,
        "batch": work.batch_per_rank,
        "fusion_bytes": knobs.get("fusion_bytes", DEFAULT_THRESHOLD_BYTES),
        "cycle_s": knobs.get("cycle_s", DEFAULT_CYCLE_S),
        "fp16": 0.0,
    }
    return {
        name: [default]
        if texts[name] is None
        else parse_values(str(texts[name]), READERS[name], name.split("_")[0])
        for name, default in defaults.items()
    }


def _subject(
    trace: Path | None, model: str | None, gpu: str, calibration: Path | None, probe: Path | None
) -> tuple[dict[str, Workload], Calibration, dict[str, Any]]:
    """Workloads by name, costs and recorded knobs of the trace or of the catalogue's networks."""
    from ..errors import UserError
    from ..tracer.trace import Trace
    from .calibration import Calibration
    from .catalogue import catalogue_workload
    from .fitting import calibrate
    from .probe import LaneProbe
    from .recorded import recorded_scenario

    if calibration is not None and probe is not None:
        raise UserError("give --calibration or --probe, not both: a calibration already holds its probe")
    if model is not None:
        if probe is not None:
            raise UserError("--probe needs a trace; with --model give --calibration")
        return (
            {name: catalogue_workload(name, gpu) for name in model.split(",")},
            Calibration.load(calibration) if calibration else Calibration.prior(),
            {},
        )
    assert trace is not None
    opened = Trace.open(trace)
    if calibration is not None:
        costs = Calibration.load(calibration)
    else:
        costs = calibrate(opened, LaneProbe.load(probe) if probe else None)
    scenario = recorded_scenario(opened, costs)
    return (
        {"": scenario.workload},
        costs,
        {"fusion_bytes": scenario.fusion_bytes, "cycle_s": scenario.cycle_s},
    )


def _with_progress(grid: Grid, quiet: bool) -> list[Answer]:
    from rich.progress import Progress

    from .. import answer

    with Progress(
        console=answer.stderr, transient=True, disable=quiet or not answer.stderr.is_terminal
    ) as progress:
        task = progress.add_task("predicting", total=grid.size)
        answers = []
        for one in grid.answers():
            answers.append(one)
            progress.advance(task, len(one.predictions))
    return answers


def _sweep(grid: Grid, folder: Path, dask: str | None, wanted: Any) -> None:
    from rich.progress import Progress

    from .. import answer
    from .sweep import read_sweep, run_sweep

    hidden = wanted.quiet or not answer.stderr.is_terminal
    with Progress(console=answer.stderr, transient=True, disable=hidden) as progress:
        task = progress.add_task("predicting", total=grid.size)
        run_sweep(grid, folder, dask=dask, done=lambda count: progress.advance(task, count))
    rows = read_sweep(folder)
    if wanted.json_target is not None:
        answer.write_json(wanted.json_target, {"format_version": 1, "rows": rows.to_dict("records")})
    if wanted.csv:
        answer.write_text_whole(wanted.csv, rows.to_csv(index=False))
    if not wanted.quiet and wanted.json_target != "-":
        fastest = rows.sort_values("step_s").to_dict("records")[0]
        answer.stdout.print(
            f"{len(rows)} scenarios; the quickest step is {fastest['step_s']:.3g} s with {fastest['aux']} lanes, "
            f"{fastest['hosts']} hosts, NIC {fastest['nic_bits_per_s'] / 1e9:.3g} Gbit/s"
        )
        answer.stdout.print(f"written: {folder}/part-*.parquet")
