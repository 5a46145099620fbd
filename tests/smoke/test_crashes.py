"""One crash of each kind, amid a start, an upgrade, a build and the writing of a store."""

from __future__ import annotations

import pytest

from tests.nightly.crashes import test_crashes, test_store_kill

library, place = test_crashes.library, test_crashes.place


def in_the_middle(calls: int) -> range:
    return range(calls // 2, calls // 2 + 1)


def test_a_build(place, library):
    """The output of an interrupted offline build is refused until it is removed."""
    test_crashes.strike_builds(place, library, in_the_middle)


@pytest.mark.parametrize("how", ["alone", "together"])
def test_writers(how, tmp_path):
    """Every acknowledged batch is in the store, in order."""
    test_store_kill.kill_writers(how, tmp_path, 2)
