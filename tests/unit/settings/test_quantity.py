"""Quantities: errors about units name those of ours."""

from __future__ import annotations

import pytest

from gossipkv.settings.quantity import DURATION, RATE, SIZE, parse


@pytest.mark.parametrize(("text", "units", "meant"), [
    ("5sec", DURATION, "5s"), ("5S", DURATION, "5s"), ("10mins", DURATION, "10m"), ("2 hours", DURATION, "2h"),
    ("5msec", DURATION, "5ms"), ("1.5 days", DURATION, "1.5d"), ("5", DURATION, "5s"), ("5MB", DURATION, None),
    ("256MB", SIZE, "256MiB"), ("256mb", SIZE, "256MiB"), ("1.5G", SIZE, "1.5GiB"), ("5kb", SIZE, "5KiB"),
    ("12", SIZE, "12B"), ("5sec", SIZE, None), ("20MB/s", RATE, "20MiB/s"), ("20MiB", RATE, "20MiB/s"),
    ("20MBps", RATE, "20MiB/s"), ("", RATE, None),
])  # fmt: skip
def test_a_unit_of_others_names_ours(text, units, meant):
    """The example has the same number, with a unit of the setting."""
    with pytest.raises(ValueError, match="expected a number with a unit") as caught:
        parse(text, units)
    assert str(caught.value).partition(", such as ")[2] == ("" if meant is None else f'"{meant}"')
    assert meant is None or parse(meant, units)
