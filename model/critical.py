"""The critical path of a step: which layer, which allreduce, which update held it up.

The step becomes a directed graph of its parts (networkx): an edge means "cannot start before". Every part
weighs as long as it lasted; the heaviest way from the step's start to its end is the critical path, and what is missing on it
is waiting. What a step would gain without one part is found by simulating it without, not by subtracting.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import networkx as nx

from ..units import format_seconds
from .engine import update_groups
from .scenario import Scenario
from .step import StepRun, simulate_step
from .workload import Workload, backward_bulks

START, END = "start", "end"


@dataclass(frozen=True)
class Part:
    """One part of the critical path; `wait_s` passed between the part before and this one."""

    name: str
    kind: str
    seconds: float
    wait_s: float


def step_graph(scenario: Scenario, run: StepRun) -> nx.DiGraph:
    """The parts of a simulated step and what each had to wait for.

    Nodes have ``kind`` (forward, backward, allreduce, update, end), ``start_s`` and ``end_s``; an edge weighs as much as
    the part it leads to. Buckets follow one another on Horovod's thread; an update waits for its gradients.
    """
    graph: nx.DiGraph = nx.DiGraph()
    work = scenario.workload

    def add(name: str, kind: str, start_s: float, end_s: float, after: list[str]) -> str:
        graph.add_node(name, kind=kind, start_s=start_s, end_s=end_s)
        for other in after:
            graph.add_edge(other, name, weight=max(0.0, end_s - start_s))
        return name

    add(START, "start", 0.0, 0.0, [])
    before = add("forward", "forward", 0.0, run.forward_end_s, [START])
    ready: dict[str, str] = {}
    begin_s = run.forward_end_s
    for number, (_, tensors) in enumerate(backward_bulks(work.tensors)):
        end_s = run.ready_s[tensors[-1].name]
        layers = (
            tensors[0].layer
            if tensors[0].layer == tensors[-1].layer
            else f"{tensors[0].layer}..{tensors[-1].layer}"
        )
        before = add(f"backward {number} ({layers})", "backward", begin_s, end_s, [before])
        begin_s = end_s
        ready.update({tensor.name: before for tensor in tensors})
    last_backward = add("backward end", "backward", begin_s, run.backward_end_s, [before])
    done: dict[str, str] = {}
    earlier: str | None = None
    for number, bucket in enumerate(run.buckets):
        largest = max(bucket.tensors, key=lambda tensor: tensor.bytes)
        after = sorted({ready[tensor.name] for tensor in bucket.tensors}) + ([earlier] if earlier else [])
        name = f"allreduce {number} ({bucket.bytes / 1e6:.3g} MB, {largest.layer})"
        earlier = add(name, "allreduce", bucket.start_s, bucket.end_s, after)
        done.update({tensor.name: earlier for tensor in bucket.tensors})
    updates: list[str] = []
    for number, group in enumerate(update_groups(work.tensors, work.update_group)):
        finished_s = max(run.done_s[tensor.name] for tensor in group)
        lasts_s = work.update_s * sum(tensor.bytes for tensor in group) / work.gradient_bytes
        names = f"update {number} ({group[0].layer}..{group[-1].layer})"
        updates.append(
            add(
                names,
                "update",
                finished_s,
                finished_s + lasts_s,
                sorted({done[tensor.name] for tensor in group}),
            )
        )
    add(END, "end", run.step_s, run.step_s, [*updates, last_backward])
    return graph


def critical_path(scenario: Scenario, run: StepRun | None = None) -> list[Part]:
    """The parts that held the step up, in order; their seconds and waits add up to the step time."""
    seen = run or simulate_step(scenario)
    graph = step_graph(scenario, seen)
    path: list[Part] = []
    name = END
    names = [END]
    # Backwards from the end: what finished last among those that had to be waited for.
    while name != START:
        name = max(graph.predecessors(name), key=lambda other: float(graph.nodes[other]["end_s"]))
        names.append(name)
    clock = 0.0
    for name in reversed(names):
        node = graph.nodes[name]
        start, end = max(clock, float(node["start_s"])), float(node["end_s"])
        if name != START:
            path.append(Part(name, str(node["kind"]), max(0.0, end - start), max(0.0, start - clock)))
        clock = max(clock, end)
    return path


def in_words(path: list[Part], most: int = 3) -> str:
    """The longest parts of a path and the waiting on it, for a line of output."""
    longest = sorted(path, key=lambda part: part.seconds, reverse=True)[:most]
    kept = [part for part in path if part in longest and part.seconds > 0]
    words = ", ".join(f"{part.name} {format_seconds(part.seconds)}" for part in kept)
    waits_s = sum(part.wait_s for part in path)
    return f"{words}, waiting {format_seconds(waits_s)}"


def gain_without(scenario: Scenario, part: Part, run: StepRun | None = None) -> float:
    """Seconds a step gets shorter when `part` costs nothing; simulated anew, so that what is then critical counts.

    Raises ValueError for a part that is no forward, backward, allreduce or update.
    """
    before_s = (run or simulate_step(scenario)).step_s
    work = scenario.workload
    number = (
        int(part.name.split()[1]) if part.kind in ("allreduce", "update") or part.name[9:10].isdigit() else 0
    )
    if part.kind == "forward":
        other = scenario.replaced(workload=dataclasses.replace(work, forward_s=0.0))
    elif part.kind == "update":
        groups = update_groups(work.tensors, work.update_group)
        share = sum(t.bytes for t in groups[number]) / work.gradient_bytes
        other = scenario.replaced(workload=dataclasses.replace(work, update_s=work.update_s * (1 - share)))
    elif part.kind == "backward":
        other = scenario.replaced(workload=_without_bulk(scenario, number))
    elif part.kind == "allreduce":
        return before_s - simulate_step(scenario, free_buckets=frozenset({number})).step_s
    else:
        raise ValueError(f"{part.name} cannot be left out")
    return before_s - simulate_step(other).step_s


def _without_bulk(scenario: Scenario, number: int) -> Workload:
    work = scenario.workload
    bulks = backward_bulks(work.tensors)
    if number < 0:  # what follows the last gradient
        return dataclasses.replace(work, backward_s=work.tensors[-1].ready_s)
    start = bulks[number - 1][0] if number else 0.0
    saved = bulks[number][0] - start
    tensors = []
    for place, (ready_s, members) in enumerate(bulks):
        moved = ready_s - saved if place >= number else ready_s
        tensors += [dataclasses.replace(tensor, ready_s=max(0.0, moved)) for tensor in members]
    return dataclasses.replace(work, tensors=tuple(tensors), backward_s=work.backward_s - saved)
