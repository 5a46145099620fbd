"""Tests that cost seconds; `test_store.py` has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.store import CHECKS
from tests.unit.storage.engine.places import RealPlace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("check", CHECKS)
def test_a_store_on_a_real_disk(check, tmp_path: Path):
    """The suite runs with the system's files, whose power never fails."""
    check(RealPlace(tmp_path))
