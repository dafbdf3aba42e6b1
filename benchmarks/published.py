"""The model against tables that other people measured, calibrated on one GPU's throughput only.

    benchmarks/published.py [--json FILE]

ResNet-50 and BERT-Base with Horovod, batch 64, four GPUs a host, over TCP on 10 and 100 GbE. What the tables do not
say (host CPU, NCCL's version and sockets, the links between GPUs of one host) is taken from the model's priors: NCCL's
ring over all GPUs as a ring of lanes, of which each host's NIC carries one hop; copies and sums cost the CPU nothing, and
within one host communication is free. Every cell's error is printed, good or bad.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.scenario import Scenario

GPUS = (1, 4, 8, 16, 32)
TABLES: list[tuple[str, float, tuple[float, ...]]] = [
    ("resnet50", 10e9, (253.1, 1015, 1796, 3147, 5113)),
    ("resnet50", 100e9, (253.1, 1015, 1986, 3651, 6141)),
    ("bert-base", 10e9, (212.8, 634, 582, 1069, 2013)),
]
SOCKETS = 2


def costs() -> Calibration:
    """The priors, with copies and sums on the GPUs instead of on cores."""
    prior = Calibration.prior()
    free = {
        name: dataclasses.replace(prior.entries[name], value=1e-12)
        for name in ("copy_s_per_byte", "fuse_in_s_per_byte", "fuse_out_s_per_byte")
    }
    return dataclasses.replace(prior, entries={**prior.entries, **free})


def predicted(model: str, nic_bits_per_s: float, gpus: int, single: float) -> float:
    """Samples per second of the whole job, from the throughput of a single GPU."""
    work = catalogue_workload(model, "v100", 64)
    work = work.scaled(speed=single * work.compute_s / 64)
    if gpus <= 4:  # within one host the GPUs' own links carry the gradients
        return single * gpus
    # One hop of the ring leaves each host, so every GPU may be given a NIC of its own.
    cluster = Cluster.star(gpus, 1, cores=8, nic_bits_per_s=nic_bits_per_s)
    return predict(Scenario(work, cluster, costs(), aux=SOCKETS), intervals=False).samples_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="nothing to shorten; for `make bench`")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model, nic, measured in TABLES:
        for gpus, value in zip(GPUS, measured, strict=True):
            guess = predicted(model, nic, gpus, measured[0])
            error = guess / value - 1
            case = f"{model}, {nic / 1e9:g} GbE, {gpus} GPUs"
            print(f"{case:32s} measured {value:7.1f}/s   predicted {guess:7.1f}/s   error {error:+6.1%}")
            rows.append(
                {
                    "case": case,
                    "variant": "error of samples/s",
                    "value": error,
                    "unit": "1",
                    "better": "lower",
                    "target": None,
                    "runs": 1,
                    "spread": 0.0,
                }
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
