"""A store that is larger than the free space beside it is still merged, and accepts writes."""

from __future__ import annotations

import pytest

from tests.unit.storage import small_disk
from tests.unit.storage.test_small_disk_slow import is_relieved

pytestmark = pytest.mark.timeout(1200)

COUNT = 1640  # Values of 1 MiB: 1.6 GiB.


def test_merges_in_little_room(tmp_path):
    """1.6 GiB are written, and an eighth again, with 0.9 GiB more on the disk for reserve, log and merges."""
    found = small_disk.told(tmp_path, "2816m", str(COUNT))
    assert found["right"]
    assert found["merged"] > COUNT << 20


def test_deleted_records_relieve_a_full_disk(tmp_path):
    """Deletes free space only after merges, whose files must fit beside those that they replace."""
    is_relieved(tmp_path, "delete")
