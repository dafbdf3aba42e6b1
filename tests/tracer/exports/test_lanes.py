"""Lanes hold what viewers can draw: nested intervals, or one interval at a time."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st
from vsketchdlc.tracer.exports.lanes import NestedLanes, SingleLanes

intervals = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), max_size=60).map(
    lambda pairs: sorted(((start, start + length) for start, length in pairs), key=lambda p: (p[0], -p[1]))
)


def placed(lanes, pairs):
    return lanes.place_all([start for start, _ in pairs], [end for _, end in pairs])


def test_a_call_inside_a_call_stays_and_a_crossing_one_moves():
    lanes = NestedLanes()
    assert placed(lanes, [(0, 10), (1, 5), (4, 8), (10, 12)]) == [0, 0, 1, 0]


def test_things_that_wait_side_by_side_never_share_a_lane():
    lanes = SingleLanes()
    assert placed(lanes, [(0, 10), (1, 5), (4, 8), (5, 6), (10, 12)]) == [0, 1, 2, 1, 0]


def test_what_is_too_deep_for_viewers_moves():
    lanes = NestedLanes(depth_limit=2)
    assert placed(lanes, [(0, 10 - i) for i in range(4)]) == [0, 0, 1, 1]


@given(intervals)
def test_nested_lanes_hold_no_partial_overlap(pairs):
    lanes = NestedLanes()
    taken = defaultdict(list)
    for start, end in pairs:
        number = placed(lanes, [(start, end)])[0]
        for other_start, other_end in taken[number]:
            assert other_end <= start or (other_start <= start and end <= other_end)
        taken[number].append((start, end))


@given(intervals)
def test_single_lanes_are_as_few_as_the_most_at_once(pairs):
    lanes = SingleLanes()
    taken = defaultdict(list)
    for start, end in pairs:
        number = placed(lanes, [(start, end)])[0]
        assert all(other_end <= start for _, other_end in taken[number])
        taken[number].append((start, end))
    most = max((sum(s <= t < e for s, e in pairs) for t in range(100)), default=0)
    assert len(taken) == most
