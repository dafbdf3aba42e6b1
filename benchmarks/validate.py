"""Predictions made before real runs: the quick suite of `vsketchdlc validate` (the smoke suite with --quick).

    benchmarks/validate.py [--quick] [--json FILE] [-o FOLDER]

About eight minutes on two cores, one with --quick; needs root for the lab.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The result as rows of a benchmark: a row a target and a point."""
    targets = {check["what"]: float(check["target"].split()[-2]) / 100 for check in result["checks"]}
    rows = [
        row("all points", check["what"], check["value"], targets[check["what"]], result["judged_points"], 0.0)
        for check in result["checks"]
        if check["value"] is not None
    ]
    for scenario in result["scenarios"]:
        for point in scenario["points"]:
            what = f"{point['aux']} lanes{', disturbed' if point['disturbed'] else ''}"
            rows.append(
                row(scenario["name"], what, abs(point["error"]), None, point["visits"], point["spread"])
            )
    return rows


def row(
    case: str, variant: str, value: float, target: float | None, runs: int, spread: float
) -> dict[str, Any]:
    better = "higher" if variant.startswith(("intervals", "scenarios")) else "lower"
    facts = {"value": value, "unit": "1", "better": better, "target": target, "runs": runs, "spread": spread}
    return {"case": case, "variant": variant, **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="keep the suite's folder (and go on in it)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vsketchdlc-validate-") as scratch:
        folder = options.output or Path(scratch)
        suite = "smoke" if options.quick else "quick"
        words = [sys.executable, "-m", "vsketchdlc", "validate", "--suite", suite, "-o", str(folder)]
        status = subprocess.run(words, check=False).returncode
        if status not in (0, 1):
            sys.exit(status)
        result = json.loads((folder / "result.json").read_text())
    if options.json:
        options.json.write_text(json.dumps(rows_of(result), indent=1))


if __name__ == "__main__":
    main()
