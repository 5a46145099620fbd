"""Slow seeds of a disk's random faults; the fast one is in `test_store_disk.py`."""

from __future__ import annotations

import pytest

from tests.unit.world import test_store_disk as line


@line.DISKS
@pytest.mark.parametrize("seed", range(1, 4))
def test_whatever_strikes(kind: str, seed: int) -> None:
    line.test_whatever_strikes(kind, seed)
