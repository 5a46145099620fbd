"""The store is as its oracle, and both are as every store must be: on a simulated disk, and on a real one."""

from __future__ import annotations

import pytest

from tests.conformance.store import CHECKS
from tests.unit.storage.engine.places import OraclePlace, SimulatedPlace, ToyPlace


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("make", [OraclePlace, ToyPlace, SimulatedPlace])
def test_every_store(make, check):
    """What is in memory alone: the oracle, the toy that others are measured by, the store on a simulated disk."""
    check(make())
