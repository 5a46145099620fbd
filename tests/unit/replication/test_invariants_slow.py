"""Invariants of clocks and records in the debug build, which only our own bugs can violate."""

from __future__ import annotations

import pytest

from gossipkv.replication.replica import clock, record
from tests.oracle import vector_clock as oracle
from tests.unit.debug_build import ONLY_DEBUG_BUILD

pytestmark = ONLY_DEBUG_BUILD


def test_clocks() -> None:
    """Unordered clocks, a falling counter and a repeated assignment are caught."""
    bad = oracle.ENTRY.pack(2, 1) + oracle.ENTRY.pack(1, 1)
    for function in (clock.compare, clock.covers, clock.merge, clock.least):
        for pair in ((bad, b""), (b"", bad)):
            with pytest.raises(AssertionError, match="packed clocks"):
                function(*pair)
    with pytest.raises(AssertionError, match="never goes back"):
        clock.raised(clock.of([(1, 2)]), 1, 1)
    with pytest.raises(AssertionError, match="each assignment once"):
        clock.of([(1, 2), (1, 3)])


def test_records() -> None:
    """A record that would not be readable is not written."""
    for wrong in ((1, 1, 0, 1, b"", b""), (1, 1, 1, 3, b"", b""), (1, 1, 1, 2, b"", b"v")):
        with pytest.raises(AssertionError, match="what is written is read"):
            record.encode(*wrong)
