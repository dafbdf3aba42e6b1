import pytest
from vsketchdlc import units
from vsketchdlc.errors import UserError


def test_sizes_are_decimal_or_binary_as_written():
    assert units.parse_bytes("64 MiB") == 64 * 2**20
    assert units.parse_bytes("10MB") == 10_000_000
    assert units.parse_bytes("7", default="KiB") == 7 * 1024


def test_rates_and_times():
    assert units.parse_bits_per_s("10") == 10e9
    assert units.parse_bits_per_s("250 Mbit/s") == 250e6
    assert units.parse_seconds("1.5ms") == pytest.approx(0.0015)


@pytest.mark.parametrize("text", ["", "ten", "5 parsecs", "1e999", "4 MB/s"])
def test_what_is_not_understood_is_named_with_an_example(text):
    with pytest.raises(UserError, match="write it like"):
        units.parse_bytes(text)


def test_three_digits_that_matter():
    assert units.format_bytes(244_403_360) == "244 MB"
    assert units.format_bits_per_s(3.81e9) == "3.81 Gbit/s"
    assert units.format_bits_per_s(999.7e6) == "1 Gbit/s"
    assert units.format_bits_per_s(999.4e6) == "999 Mbit/s"
    assert units.format_seconds(0.0456) == "45.6 ms"
    assert units.format_seconds(0) == "0 ns"
