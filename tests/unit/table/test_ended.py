"""When a table that a session has seen is no more, by reads of the catalogue that come before and after."""

from __future__ import annotations

import pytest

from gossipkv.table.ended import MOST_MET, Ended

TABLE = b"t" * 16


def after(events):
    """Whether it has ended after these: b(egin) a read, e(nd) it, m(eet) the table."""
    ended = Ended()
    for event in events:
        {"b": ended.begin_read, "e": ended.end_read, "m": lambda: ended.has(TABLE)}[event]()
    return ended.has(TABLE)


@pytest.mark.parametrize(
    ("events", "has"),
    [
        ("", False),
        ("m", False),
        ("be", False),  # It is met now: what was read may be older than the table.
        ("bem", False),
        ("bme", False),  # The read was begun before.
        ("mb", False),
        ("mbe", True),
        ("bmebe", True),
        ("bmb", False),  # The first one has failed.
        ("bmbe", True),
        ("mbbe", True),
    ],
)
def test_a_read_that_was_begun_after(events, has):
    """Only that tells a table that was dropped from a new one."""
    assert after(events) == has


def test_made_up_ids():
    """So many are kept, and who was let go of is met anew."""
    ended = Ended()
    ended.has(TABLE)
    ended.begin_read()
    ended.end_read()
    for number in range(MOST_MET):
        assert not ended.has(number.to_bytes(16, "big"))
    assert len(ended._met) == MOST_MET
    assert not ended.has(TABLE)
