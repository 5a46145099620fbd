"""A store that is larger than what is free beside it: it is merged all the same, and takes what is written."""

from __future__ import annotations

import pytest

from tests.unit.storage import small_disk
from tests.unit.storage.test_small_disk_slow import is_relieved

pytestmark = pytest.mark.timeout(1200)

COUNT = 1640  # Values of 1 MiB: 1.6 GiB.


def test_merges_in_little_room(tmp_path):
    """1.6 GiB are written, and an eighth again, on a disk with 0.9 GiB more, the reserve in them, beside the log."""
    found = small_disk.told(tmp_path, "2816m", str(COUNT))
    assert found["right"]
    assert found["merged"] > COUNT << 20


def test_deleted_records_relieve_a_full_disk(tmp_path):
    """Their room is there once files are merged, which have to fit beside what they replace."""
    is_relieved(tmp_path, "delete")
