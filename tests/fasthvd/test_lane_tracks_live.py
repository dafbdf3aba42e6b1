"""What the lanes do is in the trace of a job with lanes: each lane a process of its own, nested in its allreduce."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from vsketchdlc.tracer.trace import Trace

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
PHASES = {"lane_local_sum", "lane_reduce_scatter", "lane_allgather"}


def test_phases_of_lanes_lie_in_their_allreduce_and_on_tracks_of_their_own(mpi_jobs, tmp_path):
    script = Path(__file__).with_name("mpi_rank.py")
    lanes = [*mpi_jobs.vsketchdlc, "run", "--aux", "2", "--threshold", "1", "--"]
    job = [*lanes, *mpi_jobs.mpirun, "-np", "4", sys.executable, script, "steps", "6", "2"]
    done = mpi_jobs.run(
        *mpi_jobs.vsketchdlc, "trace", "-o", tmp_path / "trace", "--", *job, TEST_RANKS_PER_HOST="2"
    )
    assert "step 5" in done.stdout, done.stderr
    events = Trace.open(tmp_path / "trace").events()
    calls = events[(events.kind == "allreduce") & (events["bytes"] > 1000)]
    rows = events[events.kind.isin(PHASES)]
    assert rows.groupby("kind").size().to_dict() == dict.fromkeys(
        PHASES, 4 * calls[calls["rank"] == 0].shape[0]
    )
    assert set(rows.lane) == {0, 1} and rows["rank"].isna().all() and rows.process.nunique() == 4
    leaders = calls[calls["rank"].isin([0, 2])]
    for row in rows.itertuples():
        around = leaders[(leaders.t_start_ns <= row.t_start_ns) & (row.t_end_ns <= leaders.t_end_ns)]
        assert len(around), row
        assert row.step in set(around.step)
    gathered = rows[rows.kind != "lane_local_sum"].groupby(["kind", "lane"])["bytes"].sum()
    assert (
        gathered.min() > 0.49 * calls[calls["rank"] == 0]["bytes"].sum()
    )  # two hosts, two lanes: 2 x a quarter

    picture = tmp_path / "picture.json"
    assert (
        mpi_jobs.run(*mpi_jobs.vsketchdlc, "export", "-q", tmp_path / "trace", "-o", picture).returncode == 0
    )
    slices = json.loads(picture.read_text())
    slices = slices["traceEvents"] if isinstance(slices, dict) else slices
    assert {one["name"] for one in slices if one["name"].startswith("lane_")} == PHASES
    tracks = {one["args"]["name"] for one in slices if one["name"] in ("thread_name", "process_name")}
    assert any("lane" in name for name in tracks), tracks
