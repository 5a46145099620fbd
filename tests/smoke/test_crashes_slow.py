"""Tests over real processes, sockets, threads or time; `test_crashes.py` has the other tests."""

from __future__ import annotations

from tests.nightly.crashes import test_crashes

library, place = test_crashes.library, test_crashes.place


def in_the_middle(calls: int) -> range:
    return range(calls // 2, calls // 2 + 1)


def test_the_first_start(place, library):
    test_crashes.strike_all(place, library, "v1", None, in_the_middle)


def test_an_upgrade(place, library):
    """A restart answers at once, and never from an older version."""
    test_crashes.serve(place, "v1")
    place.put("v2")
    test_crashes.strike_all(place, library, "v2", "v1", in_the_middle)
