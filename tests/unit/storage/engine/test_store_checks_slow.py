"""Tests that cost seconds; `test_store_checks.py` has the others."""

from __future__ import annotations

import pytest

from tests.conformance.store import Witness
from tests.unit.storage.engine.crashing import JUDGES, Crashes, live
from tests.unit.storage.engine.places import ToyPlace
from tests.unit.storage.engine.toy_store import ToyStore


def crashed(kind, judge):
    crashes = Crashes(judge, 9)
    witness = Witness(ToyPlace(kind=kind), open_now=False)
    crashes.watch(witness)
    live(witness, seed=1, batches=50)
    return crashes


@pytest.mark.parametrize("judge", JUDGES)
def test_a_toy_that_is_right(judge):
    assert crashed(ToyStore, judge).tried.total() > 30
