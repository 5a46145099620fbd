"""The store is as its oracle, and both are as every store must be: on a simulated disk, and on a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.store import CHECKS
from tests.unit.storage.engine.places import OraclePlace, RealPlace, SimulatedPlace, ToyPlace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("make", [OraclePlace, ToyPlace, SimulatedPlace])
def test_every_store(make, check):
    """What is in memory alone: the oracle, the toy that others are measured by, the store on a simulated disk."""
    check(make())


@pytest.mark.parametrize("check", CHECKS)
def test_a_store_on_a_real_disk(check, tmp_path: Path):
    """The same again, with the system's files; there is no losing of its power."""
    check(RealPlace(tmp_path))
