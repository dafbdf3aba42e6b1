import json

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.probe import LaneProbe


def test_a_file_brings_back_the_same_calibration(tmp_path):
    calibration = Calibration.prior()
    calibration.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == calibration


@pytest.mark.parametrize(
    "damage,words",
    [
        (lambda d: d.update(format_version=99), "format 99"),
        (lambda d: d.pop("format_version"), "format None"),
        (lambda d: d["entries"].pop("copy_s_per_byte"), "no value for 'copy_s_per_byte'"),
        (lambda d: d["entries"]["copy_s_per_byte"].update(value=float("nan")), "copy_s_per_byte is nan"),
        (lambda d: d["entries"]["copy_s_per_byte"].update(value=-1.0), "must be a finite number above 0"),
        (lambda d: d["entries"].update(copy_s_per_byte=3), "damaged"),
        (lambda d: d.update(covariance=[[1.0]]), "covariance"),
        (lambda d: d.pop("entries"), "damaged"),
        (lambda d: d.update(format_version=0), "format 0"),
        (lambda d: d.update(model_error=float("nan")), "model_error is nan; it must lie between 0 and 10"),
        (lambda d: d.update(hosts=-3), "hosts is -3"),
    ],
)
def test_what_is_not_a_sound_calibration_is_refused(tmp_path, damage, words):
    data = Calibration.prior().to_json()
    damage(data)
    (tmp_path / "c.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=words):
        Calibration.load(tmp_path / "c.json")


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(UserError, match="vsketchdlc calibrate"):
        Calibration.load(tmp_path / "none.json")


def test_a_probe_comes_back_from_json_and_bad_rows_are_refused(probe):
    assert LaneProbe.from_json(probe.to_json()) == probe
    data = probe.to_json()
    data["rows"][0]["seconds"] = [float("nan")]
    with pytest.raises(UserError, match="not above 0"):
        LaneProbe.from_json(data)
    with pytest.raises(UserError, match="format 7"):
        LaneProbe.from_json({**probe.to_json(), "format_version": 7})
