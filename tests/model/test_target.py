import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.axes import settings_of
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.target import answer_target, parse_target


def setting(**changes):
    axes = {
        "hosts": [4],
        "ranks_per_host": [1],
        "cores": [32.0],
        "core_speed": [1.0],
        "nic_bits_per_s": [10e9],
        "flow_cap_bits_per_s": [5e9],
        "rtt_s": [1e-4],
        "oversubscription": [1.0],
        "batch": [64],
        "fusion_bytes": [128 << 20],
        "cycle_s": [1e-3],
    }
    return settings_of({**axes, **{name: [value] for name, value in changes.items()}})[0]


def test_what_is_needed_really_suffices_and_a_little_less_does_not():
    work, costs, place = catalogue_workload("resnet50"), Calibration.prior(), setting(nic_bits_per_s=1e9)
    answer = answer_target(work, costs, place, range(5), 0.6)
    assert answer.efficiency < 0.6
    nic = next(need for need in answer.needs if need.resource == "nic_bits_per_s")

    def best(rate):
        tried = [
            predict(setting(nic_bits_per_s=rate).scenario(work, costs, k), intervals=False).scaling_efficiency
            for k in range(5)
        ]
        return max(tried)

    assert best(nic.needed) >= 0.6 > best(nic.needed * 0.98)
    assert "60% needs a NIC of" in answer.sentence


def test_enough_is_said_to_be_enough():
    place = setting(nic_bits_per_s=100e9, flow_cap_bits_per_s=50e9)
    answer = answer_target(catalogue_workload("resnet152"), Calibration.prior(), place, range(5), 0.5)
    assert "needs nothing more" in answer.sentence and answer.needs == []


@pytest.mark.parametrize("text", ["fast", "0%", "100%", "-5%", "1.5", "nan%"])
def test_impossible_targets_are_refused(text):
    with pytest.raises(UserError, match="target"):
        parse_target(text)


def test_percent_and_share_are_the_same():
    assert parse_target("90%") == parse_target("0.9") == pytest.approx(0.9)
