"""Which recorded allreduces the lanes did: those in which lanes of the same host ran."""

import pandas as pd
import pytest
from vsketchdlc.model.fitting import calibrate
from vsketchdlc.model.lane_use import threshold_bytes, took_lanes
from vsketchdlc.model.lanes import DEFAULT_LANE_THRESHOLD_BYTES
from vsketchdlc.model.recorded import recorded_scenario
from vsketchdlc.model.step import simulate_step
from vsketchdlc.model.timeline import write_simulated_trace

MB = 1_000_000


def calls(*rows):
    return pd.DataFrame(rows, columns=["host", "bytes", "t_start_ns", "t_end_ns"])


def lane(host, start_ns, end_ns):
    return {"host": host, "kind": "lane_allgather", "t_start_ns": start_ns, "t_end_ns": end_ns}


def test_an_allreduce_took_the_lanes_that_ran_in_it_on_its_host():
    reduced = calls(("h0", 9 * MB, 100, 200), ("h0", MB, 300, 400), ("h1", 9 * MB, 300, 400))
    events = pd.DataFrame([lane("h0", 110, 190), lane("h1", 310, 390)])
    assert took_lanes(reduced, events, aux=2).tolist() == [True, False, True]


def test_lanes_that_ran_before_do_not_count():
    reduced = calls(("h0", 9 * MB, 100, 200))
    assert took_lanes(reduced, pd.DataFrame([lane("h0", 10, 90)]), aux=1).tolist() == [False]


def test_without_any_lane_track_size_decides_and_stock_has_none():
    reduced = calls(("h0", 9 * MB, 100, 200), ("h0", 4096, 300, 400))
    none = pd.DataFrame(columns=["host", "kind", "t_start_ns", "t_end_ns"])
    assert took_lanes(reduced, none, aux=1).tolist() == [True, False]
    assert took_lanes(reduced, none, aux=0).tolist() == [False, False]


@pytest.mark.parametrize(
    ("sizes", "through", "aux", "threshold"),
    [
        ([4096, 9 * MB], [False, True], 2, DEFAULT_LANE_THRESHOLD_BYTES),
        ([30 * MB, 70 * MB], [False, True], 2, 70 * MB),
        ([30 * MB, 70 * MB], [False, False], 2, 70 * MB + 1),
        ([30 * MB, 30 * MB, 30 * MB], [True, False, True], 2, DEFAULT_LANE_THRESHOLD_BYTES),
        ([64 << 10, 9 * MB], [True, True], 2, 64 << 10),
        ([30 * MB], [False], 0, DEFAULT_LANE_THRESHOLD_BYTES),
    ],
)
def test_the_threshold_is_the_usual_one_unless_the_run_shows_another(sizes, through, aux, threshold):
    assert threshold_bytes(pd.DataFrame({"bytes": sizes, "lanes": through}), aux) == threshold


def test_a_run_whose_lanes_stepped_aside_for_some_sizes_is_replayed_as_it_ran(demo, tmp_path):
    aside = demo.replaced(aux=1, lane_threshold_bytes=100 * MB)
    trace = write_simulated_trace(aside, tmp_path / "aside", steps=8, seed=1)
    again = recorded_scenario(trace, calibrate(trace))
    assert 10 * MB < again.lane_threshold_bytes <= 151 * MB
    assert simulate_step(again).step_s == pytest.approx(simulate_step(aside).step_s, rel=0.02)


def test_another_count_of_lanes_has_the_usual_threshold(demo):
    aside = demo.replaced(aux=1, lane_threshold_bytes=100 * MB)
    assert aside.with_lanes(4).lane_threshold_bytes == DEFAULT_LANE_THRESHOLD_BYTES
    assert aside.with_lanes(1) is aside
