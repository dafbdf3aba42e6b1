"""Hosts of the lab have clocks 1,000 s apart; one is made to drift. The traced messages and collectives say by how much."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from vsketchdlc.tracer import raw
from vsketchdlc.tracer.decode.convert import convert
from vsketchdlc.tracer.recording import HOOK_FOLDER, LIBRARY
from vsketchdlc.validation.lab import Lab, LabSpec

pytestmark = [pytest.mark.lab, pytest.mark.live]

DATA = Path(__file__).parents[1] / "data" / "tracer"
APART_NS = 1_000 * 10**9
DRIFT = 50e-6


@pytest.fixture(scope="module")
def logs(lab_rights, tmp_path_factory):
    """Raw logs of both hosts, as the job itself brought them to its first host."""
    folder = tmp_path_factory.mktemp("clocks") / "logs"
    spec = LabSpec(hosts=2, overrides={"h1": {"clock_offset_s": APART_NS / 1e9}})
    with Lab(spec) as lab:
        passed = {
            "LD_PRELOAD": LIBRARY,
            "PYTHONPATH": HOOK_FOLDER,
            "VSKETCH_DIR": "/tmp/vsk",
            "OMP_NUM_THREADS": 1,
        }
        variables = ";".join(f"{name}={value}" for name, value in passed.items())
        command = ["mpirun", "--bind-to", "none", "-np", "2", "-H", "h0,h1", sys.executable]
        command += [str(DATA / "train_tiny.py"), "500"]
        lab.run("h0", command, env={"OMPI_MCA_mca_base_env_list": variables}, timeout=120, check=True)
        shutil.copytree(lab.temporary_folder("h0") / "vsk", folder)
    return folder


def drifting(logs, target):
    """The logs as if h1's clock had run fast by DRIFT since it read 1,000 s; returns its first and last stamp."""
    shutil.copytree(logs, target)
    stamps = []
    for place in sorted(target.glob("h1.*/*.log")):
        records = np.memmap(place, dtype=raw.RECORD, mode="r+", offset=4096)
        known = records["kind"] > 0
        records["t"][known] += np.rint(DRIFT * (records["t"][known] - APART_NS)).astype(np.uint64)
        stamps += records["t"][known].tolist()
        records.flush()
    return min(stamps), max(stamps)


def true_time(stamps):
    """h0's time at h1's drifting stamps."""
    return (stamps - APART_NS) / (1 + DRIFT)


def test_a_thousand_seconds_and_fifty_ppm_are_found_within_fifty_microseconds(logs, tmp_path):
    first, last = drifting(logs, tmp_path / "logs")
    trace = convert(raw.read_recording(tmp_path / "logs"), tmp_path / "trace", [])
    host = trace.meta.hosts[1]
    assert host.name == "h1"
    assert host.clock_offset_ns is not None, trace.meta.notes
    stamps = np.linspace(first, last, 50)
    found = stamps + host.clock_offset_ns + host.clock_drift * (stamps - host.clock_middle_ns)
    assert np.abs(found - true_time(stamps)).max() < 50_000
    assert host.clock_uncertainty_ns < 50_000
    assert trace.flows()["delay_min_s"].min() >= 0
    assert len(trace.stragglers()) == 2
