"""The store behaves as its oracle, and both pass the conformance suite."""

from __future__ import annotations

import pytest

from tests.conformance.store import CHECKS
from tests.unit.storage.engine.places import OraclePlace, SimulatedPlace, ToyPlace


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("make", [OraclePlace, ToyPlace, SimulatedPlace])
def test_every_store(make, check):
    """The stores are the oracle, the toy, and the store on a simulated disk."""
    check(make())
