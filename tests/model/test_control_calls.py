import numpy as np
import pandas as pd
import pytest
from vsketchdlc.model.control_calls import control_calls_s

MS = 1_000_000


def calls(rank, durations, steps, begin_ms=0):
    rows, now = [], begin_ms * MS
    for duration, step in zip(durations, steps, strict=True):
        rows.append((step, rank, "negotiate", None, now, now + int(duration * MS)))
        now += 8 * MS
    return pd.DataFrame(rows, columns=["step", "rank", "kind", "tensor", "t_start_ns", "t_end_ns"])


def test_the_last_to_arrive_tells_what_a_call_costs():
    # Ranks arrive last in turn: each waits 4 ms in every second call.
    one = calls(0, [4, 0.03] * 10, [1] * 20)
    other = calls(1, [0.03, 4] * 10, [1] * 20)
    assert control_calls_s(pd.concat([one, other]), [1]) == pytest.approx(np.full(20, 0.03e-3))


@pytest.mark.parametrize("missed", [1, 3])
def test_a_rank_that_was_recorded_some_calls_later_is_matched_all_the_same(missed):
    one = calls(0, [4, 0.03] * 10, [1] * 20)
    other = calls(1, ([0.03, 4] * 10)[missed:], [1] * (20 - missed))
    found = control_calls_s(pd.concat([one, other]), [1])
    assert len(found) == 20 - missed
    assert found == pytest.approx(np.full(20 - missed, 0.03e-3))


def test_a_rank_whose_step_begins_later_has_its_calls_in_the_step_before():
    one = calls(0, [4, 0.03] * 10, [1] * 10 + [2] * 10)
    other = calls(1, [0.03, 4] * 10, [1] * 13 + [2] * 7)
    assert control_calls_s(pd.concat([one, other]), [2]) == pytest.approx(np.full(10, 0.03e-3))


def test_each_stretch_of_steps_is_matched_on_its_own():
    one = pd.concat([calls(0, [4, 0.03] * 5, [1] * 10), calls(0, [4, 0.03] * 5, [10] * 10, begin_ms=900)])
    other = pd.concat(
        [calls(1, [0.03, 4] * 5, [1] * 10), calls(1, [4] + [0.03, 4] * 4, [10] * 9, begin_ms=908)]
    )
    found = control_calls_s(pd.concat([one, other]), [1, 10])
    assert len(found) == 19
    assert found == pytest.approx(np.full(19, 0.03e-3))


def test_noise_alone_does_not_shift_the_ranks():
    rng = np.random.default_rng(1)
    one, other = (0.04 * rng.lognormal(0, 0.01, 50) for _ in range(2))
    found = control_calls_s(pd.concat([calls(0, one, [1] * 50), calls(1, other, [1] * 50)]), [1])
    assert found == pytest.approx(np.minimum(one, other) * 1e-3, rel=1e-3)


def test_no_calls_are_no_durations():
    assert len(control_calls_s(calls(0, [], []), [1])) == 0
