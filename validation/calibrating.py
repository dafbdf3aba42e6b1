"""A calibration run, as a program that is started on one host of a lab: trial, lane probe, fit.

    python -m vsketchdlc.validation.calibrating FOLDER AUX_MAX STEPS BUDGET_S mpirun -np 2 -H h0,h1 python train.py

What `vsketchdlc tune` does before its choice, without its memory of earlier answers: here every calibration is
a run of its own. FOLDER gets ``trace/``, ``probe.json`` and ``calibration.json``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..answer import write_json
from ..errors import UserError
from ..fasthvd.probe import probe_lanes
from ..fasthvd.trial import record_trial
from ..model.fitting import calibrate


def main() -> None:
    """Calibrate as the command line says; exit 2 with one line when the trial or the probe cannot run."""
    folder, aux_max, steps, budget_s, *command = sys.argv[1:]
    place = Path(folder)
    try:
        trace = record_trial(command, place / "trace", int(steps))
        probe = probe_lanes(command, most=int(aux_max), budget_s=float(budget_s))
        write_json(str(place / "probe.json"), probe.to_json())
        calibrate(trace, probe).save(place / "calibration.json")
    except UserError as error:
        print(f"vsketchdlc: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
