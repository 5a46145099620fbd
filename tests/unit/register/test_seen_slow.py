"""Slow tests of positions; the fast ones are in `test_seen.py`."""

from __future__ import annotations

import pytest

from gossipkv.register.seen import MAX_INCARNATIONS, MAX_UNCHECKED
from tests.unit.register.test_seen import A, B, C, Store


@pytest.fixture
def stores():
    """Return three stores and a copy; `b` was copied after three batches and wrote more in two lives."""
    a, b, c = Store(A), Store(B), Store(C)
    b.write(3)
    copy = dict(b.records)
    b.write(2)
    b.open()
    b.write(4)
    return a, b, c, copy


def test_there_is_a_limit_to_everything(stores):
    """A store remembers a limited number of its own incarnations and the newest of others."""
    a, b, _, _ = stores
    first = b.seen.tell([])
    for _ in range(MAX_INCARNATIONS + 5):
        b.open()
        b.write()
        a.seen.hear(b.seen.tell([]))
    assert len(b.records) <= MAX_INCARNATIONS + 1
    assert len(a.seen.seen_of(B)) == MAX_UNCHECKED
    a.seen.hear(first)
    assert len(a.seen.seen_of(B)) == MAX_UNCHECKED
    b.seen.hear(first)
    assert not b.seen.behind
