"""The invariants of the debug build detect uncounted requests at once."""

from __future__ import annotations

import pytest

from tests.unit.debug_build import ONLY_DEBUG_BUILD
from tests.unit.loadtest.scripted import Scripted

pytestmark = ONLY_DEBUG_BUILD


def test_requests_that_go_by_uncounted_are_noticed() -> None:
    """A run with closed connections fails: its requests in flight were not counted as lost."""
    with Scripted() as scripted:
        scripted.generator.begin(requests=2, now_ns=0)
        assert scripted.turn(1)
        scripted.generator.close()
        with pytest.raises(AssertionError, match="answered, refused, lost or in flight"):
            scripted.turn(2)
