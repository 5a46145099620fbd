"""The invariants that the debug build checks in the load generator: what goes by uncounted is noticed at once."""

from __future__ import annotations

import pytest

from tests.unit.debug_build import ONLY_DEBUG_BUILD
from tests.unit.loadtest.scripted import Scripted

pytestmark = ONLY_DEBUG_BUILD


def test_requests_that_go_by_uncounted_are_noticed() -> None:
    """A run does not go on once its connections were closed: what they had in flight was not counted as lost."""
    with Scripted() as scripted:
        scripted.generator.begin(requests=2, now_ns=0)
        assert scripted.turn(1)
        scripted.generator.close()
        with pytest.raises(AssertionError, match="answered, refused, lost or in flight"):
            scripted.turn(2)
