"""The head of a map encodes its state, and swaps form a chain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.register.changes import Applied, ChangeRefused
from gossipkv.register.metadata.head import (
    DROPPED_BEFORE,
    FUNCTIONS,
    LAST_HEADS,
    MapHead,
    Past,
    decode_head,
    drop,
    swap,
)
from gossipkv.register.metadata.pages import config_id, pack

CONFIGS = st.integers(0, (1 << 64) - 1)
PASTS = st.builds(Past, CONFIGS, st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32))
FIRST = MapHead(1, b"1" * 16, b"r" * 32)


def apply(payload, change, generation=0):
    return FUNCTIONS[change[:2]](payload, change.argument, generation)


@given(PASTS, st.lists(PASTS, max_size=LAST_HEADS), st.booleans())
def test_bytes(now, last, ended):
    head = MapHead(*now, tuple(last), ended)
    assert decode_head(head.encode()) == head


@pytest.mark.parametrize("payload", [
    b"", b"\xc1", pack((1,)), pack((2, *FIRST)), pack((1, *FIRST[:2], b"short", (), False)),
    pack((1, 1, b"1" * 15, b"r" * 32, (), False)), pack((1, -1, b"1" * 16, b"r" * 32, (), False)),
    pack((1, *FIRST[:4], 0)),
    pack((1, *FIRST[:3], (FIRST[:3],) * (LAST_HEADS + 1), False)),
])  # fmt: skip
def test_what_is_no_head(payload):
    with pytest.raises(ProtocolError):
        decode_head(payload)


def test_one_follows_the_other():
    """A swap names its predecessor transaction and the next sequence; a repetition changes nothing."""
    change = swap(FIRST.transaction, 2, b"2" * 16, b"s" * 32)
    applied = apply(FIRST.encode(), change)
    second = decode_head(applied.payload)
    assert second == MapHead(2, b"2" * 16, b"s" * 32, (Past(*FIRST[:3]),))
    assert apply(applied.payload, change) == Applied(applied.payload)
    later = apply(applied.payload, swap(b"2" * 16, 3, b"3" * 16, b"t" * 32)).payload
    assert apply(later, change) == Applied(later)


@pytest.mark.parametrize(("change", "generation"), [
    (swap(b"0" * 16, 2, b"2" * 16, b"s" * 32), 0),
    (swap(FIRST.transaction, 3, b"2" * 16, b"s" * 32), 0),
    (swap(FIRST.transaction, 1, b"2" * 16, b"s" * 32), 0),
    (swap(FIRST.transaction, 2, b"2" * 16, b"s" * 32), 1),
    (swap(FIRST.transaction, config_id(1, 2), b"2" * 16, b"s" * 32), 0),
])  # fmt: skip
def test_what_does_not_follow(change, generation):
    """The predecessor is another, a sequence is skipped, or the generation has changed."""
    refused = apply(FIRST.encode(), change, generation)
    assert isinstance(refused, ChangeRefused)
    assert refused.code == "CONFLICT"


def test_the_end():
    """No swap follows the end, which differs from a conflict; a repeated drop changes nothing."""
    ended = apply(FIRST.encode(), drop(b"o" * 20)).payload
    assert decode_head(ended) == FIRST.followed_by(FIRST.config, b"o" * 16, FIRST.root)._replace(ended=True)
    assert apply(ended, drop(b"o" * 20)) == Applied(ended)
    assert apply(ended, drop(b"p" * 20)) == Applied(ended, DROPPED_BEFORE)
    refused = apply(ended, swap(FIRST.transaction, 2, b"2" * 16, b"s" * 32))
    assert isinstance(refused, ChangeRefused)
    assert refused.code == "UNKNOWN_DATABASE"


def test_the_last_heads_are_kept():
    """The newest heads are kept, as many as readers have time for."""
    head = FIRST
    for config in range(2, 30):
        head = head.followed_by(config, config.to_bytes(16, "big"), bytes(31) + bytes([config]))
    assert [past.config for past in head.last] == [28, 27, 26, 25, 24, 23, 22, 21]
    assert len(head.roots) == LAST_HEADS + 1
