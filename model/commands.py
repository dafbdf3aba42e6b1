"""Command line of the model part: ``calibrate`` and ``whatif``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .calibration import Calibration
    from .whatif import Answer, Grid
    from .workload import Workload


def register(app: typer.Typer) -> None:
    """Add this part's commands to `app`."""
    app.command("calibrate")(calibrate_command)
    app.command("whatif")(whatif_command)


def calibrate_command(
    trace: Annotated[Path, typer.Argument(help="Folder of a recorded trace.")],
    probe: Annotated[Path | None, typer.Option("--probe", help="Lane probe (JSON) made beside it.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")] = Path(
        "calibration.json"
    ),
    cores: Annotated[float | None, typer.Option("--cores", help="Cores of one host for the job.")] = None,
    json_target: Annotated[
        str | None, typer.Option("--json", help="Also as JSON to FILE, or - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Find the model's costs from a trace: vsketchdlc calibrate trace/ --probe probe.json"""
    from .. import answer
    from ..errors import UserError
    from ..tracer.trace import Trace
    from .fitting import calibrate
    from .probe import LaneProbe

    if cores is not None and not 0.001 <= cores <= 4096:
        raise UserError(f"cores is {cores}; it must lie between 0.001 and 4096")
    calibration = calibrate(Trace.open(trace), LaneProbe.load(probe) if probe else None, cores=cores)
    calibration.save(output)
    if json_target:
        answer.write_json(json_target, calibration.to_json())
    if not quiet and json_target != "-":
        _print_calibration(calibration)
        answer.stdout.print(
            f"wrote {output}; next: vsketchdlc whatif {trace} --calibration {output} --aux 0:8"
        )


def whatif_command(
    trace: Annotated[Path | None, typer.Argument(help="Folder of a recorded trace.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Catalogue network instead of a trace.")
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
    batch: Annotated[int | None, typer.Option("--batch", help="Samples per rank and step.")] = None,
    fusion: Annotated[
        str | None, typer.Option("--fusion", help="Horovod's fusion threshold, MiB by default.")
    ] = None,
    cycle: Annotated[str | None, typer.Option("--cycle", help="Horovod's cycle time, ms by default.")] = None,
    min_gain: Annotated[float, typer.Option("--min-gain", help="Least gain worth a lane (share).")] = 0.02,
    json_target: Annotated[str | None, typer.Option("--json", help="JSON to FILE, or - for stdout.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Predict step times you never ran: vsketchdlc whatif trace/ --aux 0:8 --nic 10,25,100"""
    from .. import answer
    from ..errors import UserError
    from ..units import parse_bits_per_s, parse_bytes, parse_seconds
    from .whatif import Grid, parse_values, read_aux, settings_of, whole_number

    if (trace is None) == (model is None):
        raise UserError(
            "give a trace folder or --model NAME: vsketchdlc whatif trace/ or whatif --model alexnet"
        )
    counts = read_aux(aux)
    work, costs, knobs = _subject(trace, model, gpu, calibration, probe)
    if batch is not None:
        work = work.scaled(batch_per_rank=batch)
    if fusion is not None:
        knobs["fusion_bytes"] = parse_bytes(fusion, "MiB", "fusion threshold")
    if cycle is not None:
        knobs["cycle_s"] = parse_seconds(cycle, "ms", "cycle time")
    here = costs.cluster()

    def axis(text: str | None, default: float, one: Any, what: str) -> list[float]:
        return [default] if text is None else parse_values(text, one, what)

    settings = settings_of(
        hosts=axis(hosts, len(here.hosts), whole_number(1, 65536, "hosts"), "hosts"),
        ranks_per_host=axis(
            ranks_per_host, here.hosts[0].ranks, whole_number(1, 1024, "ranks per host"), "ranks"
        ),
        cores=axis(cores, here.hosts[0].cores, lambda t: _number(t, "cores"), "cores"),
        nic_bits_per_s=axis(
            nic, here.nic_bits_per_s("h0"), lambda t: parse_bits_per_s(t, what="NIC rate"), "NIC rate"
        ),
        flow_cap_bits_per_s=axis(flow_cap, here.flow_cap_bits_per_s, _flow_cap, "flow cap"),
        latency_s=axis(rtt, 2 * costs.latency_s, lambda t: parse_seconds(t, "ms", "rtt"), "rtt"),
    )
    settings = [_half_rtt(setting) for setting in settings]
    grid = Grid(work, costs, counts, settings, knobs, min_gain)
    answers = _with_progress(grid, quiet)
    if json_target:
        result = {"format_version": 1, "workload": work.name, "source": work.source}
        answer.write_json(json_target, {**result, "settings": [one.to_json() for one in answers]})
    if not quiet and json_target != "-":
        _print_answers(work, answers)


def _half_rtt(setting: Any) -> Any:
    import dataclasses

    return dataclasses.replace(setting, latency_s=setting.latency_s / 2)


def _number(text: str, what: str) -> float:
    from ..errors import UserError

    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{what} '{text}' is not a number") from None
    if not 0.001 <= value <= 4096:
        raise UserError(f"{what} is {text}; it must lie between 0.001 and 4096")
    return value


def _flow_cap(text: str) -> float:
    from ..units import parse_bits_per_s

    return float("inf") if text.strip() in ("none", "inf") else parse_bits_per_s(text, what="flow cap")


def _subject(
    trace: Path | None, model: str | None, gpu: str, calibration: Path | None, probe: Path | None
) -> tuple[Workload, Calibration, dict[str, Any]]:
    """Workload, costs and recorded knobs of the trace or of the catalogue's network."""
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
            catalogue_workload(model, gpu),
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
    return scenario.workload, costs, {"fusion_bytes": scenario.fusion_bytes, "cycle_s": scenario.cycle_s}


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


def _print_answers(work: Workload, answers: list[Answer]) -> None:
    from rich.table import Table

    from .. import answer
    from ..units import format_bits_per_s, format_bytes, format_seconds
    from .bottleneck import NAMES, limiting

    answer.stdout.print(
        f"{work.name}: {format_bytes(work.gradient_bytes)} of gradients a step ({work.source})"
    )
    for one in answers:
        place = one.setting
        table = Table(
            title=f"{place.hosts} hosts x {place.ranks_per_host}, {place.cores:g} cores, "
            f"NIC {format_bits_per_s(place.nic_bits_per_s)}, flow {format_bits_per_s(place.flow_cap_bits_per_s)}",
            title_justify="left",
        )
        for column in ("aux", "step", "median 90 %", "steps 5-95 %", "gain", "samples/s", "limit"):
            table.add_column(column, justify="right", no_wrap=True)
        stock = next((p for p in one.predictions if p.aux == 0), None)
        for p in one.predictions:
            table.add_row(
                f"{p.aux}{' *' if p.aux == one.choice.aux else ''}",
                format_seconds(p.step_s),
                f"{p.low_s:.3g} - {p.high_s:.3g} s",
                f"{p.p5_s:.3g} - {p.p95_s:.3g} s",
                "" if stock is None else f"{stock.step_s / p.step_s:.2f}x",
                f"{p.samples_per_s:.4g}",
                NAMES[limiting(p)].removeprefix("the "),
            )
        answer.stdout.print(table)
        answer.stdout.print(f"choice: {one.choice.aux} - {one.choice.reason}")
        answer.stdout.print(f"why: {one.bottleneck}\n")


def _print_calibration(calibration: Calibration) -> None:
    from rich.table import Table

    from .. import answer

    table = Table()
    for column in ("parameter", "value", "90 % interval", "unit", "identified", "by"):
        table.add_column(column)
    for name, entry in calibration.entries.items():
        table.add_row(
            name,
            f"{entry.value:.4g}",
            f"{entry.low:.3g} - {entry.high:.3g}",
            entry.unit,
            "yes" if entry.identified else "no",
            entry.source,
        )
    answer.stdout.print(table)
    for kind, values in calibration.residuals.items():
        worst = max(values, key=abs)
        answer.stdout.print(f"fit error of {kind}: worst {worst:+.1%} of {len(values)}")
    for note in calibration.notes:
        answer.stdout.print(f"note: {note}")
