"""A store on a real disk that is full: what gives room back is taken, and then it is written to again, as it runs."""

from __future__ import annotations

import pytest

from tests.unit.storage import small_disk

pytestmark = pytest.mark.timeout(300)


def is_relieved(tmp_path, how):
    """Not a byte is free; then something is done, and values are taken again."""
    found = small_disk.told(tmp_path, "48m", how)
    assert found["free"] == 0
    assert found["refused"]
    assert found["count"] > 50
    assert found["written"] == small_disk.ENOUGH
    assert found["kept"]


def test_a_full_disk_is_relieved(tmp_path):
    """By a space that is dropped; by night, by records that are deleted, which takes longer."""
    is_relieved(tmp_path, "drop")
