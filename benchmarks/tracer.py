"""What tracing costs: one event, a training step, memory; how fast logs become a trace and a trace a report.

    benchmarks/tracer.py [--quick] [--case event|step|convert|report] [--model alexnet|resnet50_v1] [--json FILE]

* `event`: nanoseconds that the library adds to one recorded event, in a C program that does nothing else.
* `step`: two lab hosts train for real; in one and the same run single steps without and with tracing take turns,
  beside Horovod's timeline and MXNet's profiler. About 6 minutes a model.
* `convert`, `report`: generated logs of a million events, a generated trace of 64 ranks x 500 steps x 161 tensors.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from tracer_cases.event import event_rows
from tracer_cases.rows import Row
from tracer_cases.scale import convert_rows, report_rows
from tracer_cases.step import TRAININGS, step_rows


def main() -> None:
    """Run the cases, print a table, write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--case", choices=["event", "step", "convert", "report"], help="one case alone")
    parser.add_argument(
        "--model", choices=[one.model for one in TRAININGS], help="of the step case, one alone"
    )
    options = parser.parse_args()
    models = () if options.model is None else (options.model,)
    cases: dict[str, Callable[[bool], Iterator[Row]]] = {
        "event": event_rows,
        "step": functools.partial(step_rows, models=models),
        "convert": convert_rows,
        "report": report_rows,
    }
    rows: list[Row] = []
    print(f"{'case':<50} {'variant':<49} {'value':>10} {'unit':<9} {'target':>7}  spread")
    for name, case in cases.items():
        for made in case(options.quick) if options.case in (None, name) else ():
            rows.append(made)
            spread = "" if made["spread"] is None else f"{made['spread'][0]:.4g} to {made['spread'][1]:.4g}"
            target = "-" if made["target"] is None else f"{made['target']:.4g}"
            print(
                f"{made['case']:<50} {made['variant']:<49} {made['value']:>10.4g} {made['unit']:<9} {target:>7}"
                f"  {spread}",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
