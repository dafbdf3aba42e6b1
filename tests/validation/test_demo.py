"""The demo's arithmetic and page, on made-up results; the real demo is a live test of its own."""

import pytest
from vsketchdlc.validation.demo import DemoResult, Measured, Predicted, counts_to_measure
from vsketchdlc.validation.demo_page import demo_page


def result(chosen=4):
    predicted = [
        Predicted(aux, seconds, 0.9 * seconds, 1.1 * seconds)
        for aux, seconds in enumerate([2.2, 2.0, 1.3, 1.1, 0.95, 0.95, 0.97])
    ]
    measured = [
        Measured(0, 2.0, [5.0, 2.0, 2.0]),
        Measured(2, 1.3, [1.3] * 3),
        Measured(4, 1.0, [1.0] * 3),
        Measured(6, 0.98, [0.98] * 3),
    ]
    return DemoResult(chosen, "4 lanes <are> enough", predicted, measured, "lab: 2 hosts", ["Emulated."])


def test_speedup_error_and_regret():
    demo = result()
    assert demo.speedup == pytest.approx(2.0)
    assert demo.error_at(0) == pytest.approx(0.1)
    assert demo.mean_abs_error == pytest.approx((0.1 + 0 + 0.05 + 0.01 / 0.98) / 4)
    assert demo.regret == pytest.approx(1.0 / 0.98 - 1)


def test_result_file_has_the_promised_keys():
    data = result().to_json()
    assert {"chosen_aux", "predicted", "measured", "speedup", "mean_abs_error", "regret", "lab"} <= set(data)
    assert set(data["predicted"][0]) == {"aux", "step_s", "low_s", "high_s"}
    assert {"aux", "step_s", "steps"} <= set(data["measured"][0])


@pytest.mark.parametrize(
    ("chosen", "counts"),
    [
        (0, [0, 1, 2, 4]),
        (1, [0, 1, 2, 3]),
        (3, [0, 1, 3, 5]),
        (4, [0, 2, 4, 6]),
        (5, [0, 3, 5, 6]),
        (6, [0, 4, 5, 6]),
    ],
)
def test_the_choice_is_measured_with_fewer_and_more_lanes(chosen, counts):
    assert counts_to_measure(chosen) == counts


def test_the_page_stands_alone_and_escapes_what_it_quotes():
    page = demo_page(result(), "forward  <1 s>")
    assert 'src="http' not in page
    assert "4 lanes &lt;are&gt; enough" in page
    assert "forward  &lt;1 s&gt;" in page
    assert "Emulated." in page
