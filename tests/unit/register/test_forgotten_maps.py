"""A map that is forgotten leaves nothing, whenever its node stops; its end stays if it is needed."""

from __future__ import annotations

import pytest

from gossipkv.register import state
from gossipkv.register.ballot import Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.edits import digest_of
from gossipkv.register.entries import EntryMap
from gossipkv.register.state import Base, RegisterMap, read_map

ENTRIES = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
ACCEPTORS = Acceptors.of([AcceptorId(b"a" * 16, 1)])
BASE = Base(1, 5, digest_of(ENTRIES), 6, entries=EntryMap.of(ENTRIES), acceptors=ACCEPTORS, shown=Ballot(1, 1, 5, 1))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(state, "BATCH_BYTES", 1)


def stops(map_, records, *, but_end):
    """Yield the records on a disk at which a node may stop while it forgets a map."""
    for batch in map_.gone(but_end=but_end):
        for key, record in batch.items():
            records.pop(key, None)
            if record is not None:
                records[key] = record
        yield dict(records)


def written(map_, base):
    batches, _ = map_.replace(base)
    return {key: record for batch in [*batches, map_.records()] for key, record in batch.items() if record is not None}


def test_a_map_without_a_header_is_none():
    map_ = RegisterMap()
    records = written(map_, BASE)
    for left in stops(map_, records, but_end=False):
        read, strange = read_map(sorted(left.items()))
        assert (read.base, strange) == (None, sorted(left))
    assert left == {}


def test_an_end_is_whole_without_entries():
    map_ = RegisterMap()
    records = written(map_, BASE._replace(ended=True))
    for left in stops(map_, records, but_end=True):
        read, strange = read_map(sorted(left.items()))
        assert (read.base.place, read.base.ended, read.check()) == ((1, 5), True, True)
        assert strange == [key for key in sorted(left) if key]
    assert left.keys() == {b""}


def test_deletions_that_were_not_written_go_along():
    map_ = RegisterMap()
    records = written(map_, BASE)
    after = map_.base.after([(b"b", None)])
    transaction = state.Transaction(6, ((b"b", None),), after.digest)
    assert map_.follow(1, [transaction])
    *_, left = stops(map_, records, but_end=False)
    assert left == {}
