"""Positions of stores are stored and exchanged, so a store that went back is found and not counted."""

from __future__ import annotations

from random import Random

import msgpack
import pytest

from gossipkv.errors import ProtocolError
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.seen import MAX_BYTES, SeenPositions, positions_in

A, B, C = (AcceptorId(16 * letter, 1) for letter in (b"a", b"b", b"c"))


class Store:
    """A store and its positions, through several lives."""

    def __init__(self, me):
        self.me = me
        self.records = {}
        self.openings = 0
        self.open()

    def open(self, records=None):
        """Begin a life with the stored records or with these."""
        self.records = dict(self.records if records is None else records)
        self.openings += 1
        self.seen = SeenPositions(self.me, self.records.items(), Random(f"{self.me} {self.openings}"))

    def write(self, batches=1):
        for _ in range(batches):
            for key, value in self.seen.records().items():
                if value is None:
                    del self.records[key]
                else:
                    self.records[key] = value
            self.seen.synced()

    def tell(self, *others):
        """Send the positions that this store knows to others."""
        for other in others:
            other.seen.hear(self.seen.tell([A, B, C]))


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


def test_who_was_told_finds_that_it_is_behind(stores):
    """Direct observers and hearsay find a store that went back or is empty; a restart is no return."""
    a, b, c, copy = stores
    b.tell(a)
    a.tell(c)
    good = b.records
    for told in (a, c):
        for records in (good, copy, {}):
            b.open(records)
            told.tell(b)
            assert bool(b.seen.behind) == (records is not good)
    assert "other nodes have seen 4 batches of its incarnation 2, and it has 0" in b.seen.behind


def test_an_opening_that_takes_its_number_again(stores):
    """A reused number is another opening, told apart by its random id, however much it writes."""
    a, b, _, copy = stores
    b.tell(a)
    b.open(copy)
    b.write(9)
    a.tell(b)
    assert b.seen.behind


def test_what_was_never_synced_was_never_told(stores):
    """Unsynced batches were never sent, so no peer misses them; an opening without batches takes no number."""
    a, b, _, _ = stores
    b.seen.records()
    b.tell(a)
    for _ in range(3):
        b.open()
        b.tell(a)
        a.tell(b)
    b.write()
    b.tell(a)
    a.tell(b)
    assert not b.seen.behind


def test_what_is_seen_goes_along_with_the_next_batch(stores):
    """Positions survive a crash if a batch was written, and cause no batch of their own."""
    a, b, c, _ = stores
    b.tell(a, c)
    a.write()
    for store in (a, c):
        store.open()
    assert list(a.seen.seen_of(B).values()) == [4]
    assert c.seen.seen_of(B) == {}
    before = dict(a.records)
    a.write()
    changed = {key for key, value in a.records.items() if before.get(key) != value}
    assert len(changed) == 1  # The record of its own position.


def test_a_reply_counts_of_who_was_told_all(stores):
    """A reply counts if its sender knew all; not after an early request, nor with two lives seen."""
    a, b, c, copy = stores
    told = a.seen.seen_of(B)
    b.tell(a, c)
    assert a.seen.is_counted(B, told, b.seen.tell([A]))
    b.open()
    b.write()
    late = b.seen.tell([A])
    b.open(copy)
    a.seen.hear(late)
    reply = b.seen.tell([A])
    a.seen.hear(reply)
    assert not a.seen.is_counted(B, told, reply)
    assert not a.seen.is_counted(B, {}, c.seen.tell([]))
    b.write()
    a.seen.hear(b.seen.tell([A]))
    assert not a.seen.is_counted(B, told, b.seen.tell([A]))
    a.tell(b)
    assert b.seen.behind


def test_rounds_begin_anew_once(stores):
    """Rounds restart once when another life than the counted one is reported."""
    a, b, c, copy = stores
    b.tell(c)
    b.open(copy)
    b.tell(a)
    assert a.seen.hear(c.seen.tell([B])) is True
    assert a.seen.hear(c.seen.tell([B])) is False
    assert b.seen.hear(a.seen.tell([B])) is True  # Its own reply was counted, too.
    assert b.seen.hear(a.seen.tell([B])) is False


def test_what_a_store_says_of_its_past_is_told_no_more(stores):
    """A counted store has been at its seen positions: the newest suffices, and hearsay of older ones is no news."""
    a, b, c, _ = stores
    for _ in range(3):
        c.seen.hear(b.seen.tell([]))
        b.open()
        b.write()
    a.seen.hear(b.seen.tell([]))
    a.seen.hear(c.seen.tell([B]))
    assert len(a.seen.seen_of(B)) == 4
    assert a.seen.is_counted(B, a.seen.seen_of(B), b.seen.tell([]))
    assert len(a.seen.seen_of(B)) == 1
    assert a.seen.hear(c.seen.tell([B])) is False
    assert len(a.seen.seen_of(B)) == 1


def test_what_a_later_version_adds_is_passed_over():
    """Extra columns are ignored; other forms are malformed."""
    a = SeenPositions(A, [], Random(1))
    a.hear(msgpack.packb([[*B, 1, 2, 3, "more"]]))
    assert a.seen_of(B) == {(1, 2): 3}
    for wrong in ([[*B, 1, 2]], [[*B, 1, 2, -1]], [["b", 1, 1, 2, 3]], [3], {}, 3):
        with pytest.raises(ProtocolError):
            a.hear(msgpack.packb(wrong))
    for data in (b"", b"\xc1", bytes(MAX_BYTES + 1)):
        with pytest.raises(ProtocolError):
            list(positions_in(data))
