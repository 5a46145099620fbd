"""Tests that cost seconds; `test_smear_schedule.py` has the others."""

from __future__ import annotations

import random

import pytest

from gossipkv.table.controllers.smear_schedule import MAX_WAIT_MS, SmearSchedule
from tests.unit.table.controllers.test_smear_schedule import TABLE, WALL_MS, due


@pytest.fixture
def smearing():
    """Return an empty schedule."""
    made = SmearSchedule(random.Random(1))
    made.begin(100.0, WALL_MS, None)
    made.is_counted = True
    return made


def test_puts_are_due_evenly_over_two_minutes(smearing):
    """Each put has a time of its own, in the order of acceptance."""
    puts = [smearing.accept(TABLE, b"k", b"v", 100.0, WALL_MS) for _ in range(12_000)]
    assert [put.time for put in puts] == sorted({put.time for put in puts})
    for put in puts:
        smearing.is_there(put)
    left, counts = puts, []
    for minute in range(12):
        counts.append(len(sent := due(smearing, left, 100.0 + (minute + 1) * MAX_WAIT_MS / 12_000)))
        for put in sent:
            smearing.forget(put)
        left = [put for put in left if put not in {*sent}]
    assert (sum(counts), smearing.puts, smearing.bytes, smearing.tables) == (12_000, 0, 0, {})
    assert all(900 < count < 1100 for count in counts), counts
