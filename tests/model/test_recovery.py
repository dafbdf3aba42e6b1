import pytest
from vsketchdlc.model.recovery import trial


@pytest.mark.slow
def test_known_costs_come_back_and_the_intervals_hold_them_nine_times_in_ten(demo):
    trials = [trial(demo, seed=seed, noise=0.01) for seed in range(20)]
    found = [one for each in trials for one in each]
    names = {one.name for one in found}
    assert {
        "flow_cap_bits_per_s",
        "nic_bits_per_s",
        "lane_s_per_byte",
        "copy_s_per_byte",
        "stock_duplex",
    } <= names
    assert {one.name: one.error for one in found if abs(one.error) > 0.03} == {}
    held = sum(one.held for one in found) / len(found)
    assert 0.85 <= held <= 0.95
