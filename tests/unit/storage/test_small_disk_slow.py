"""A store on a full real disk accepts operations that free space, and then writes again, without a restart."""

from __future__ import annotations

import pytest

from tests.unit.storage import small_disk

pytestmark = pytest.mark.timeout(300)


def is_relieved(tmp_path, how):
    """Check that the disk was full, and that values were accepted after the relief."""
    found = small_disk.told(tmp_path, "48m", how)
    assert found["free"] == 0
    assert found["refused"]
    assert found["count"] > 50
    assert found["written"] == small_disk.ENOUGH
    assert found["kept"]


def test_a_full_disk_is_relieved(tmp_path):
    """A dropped space frees the disk; the nightly tests delete records instead, which takes longer."""
    is_relieved(tmp_path, "drop")
