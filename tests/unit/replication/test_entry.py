"""Entries from other nodes against dictionaries: clocks from counters, and refused input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.replication import _replication
from gossipkv.replication._replication import LogEntry
from gossipkv.replication.replica import clock, record
from tests.oracle import entry as oracle

counters = st.integers(0, 3) | st.integers(0, 2**64 - 1)
clocks = st.dictionaries(st.integers(0, 4) | st.integers(0, 2**64 - 1), counters, max_size=6)
dots = st.tuples(st.integers(0, 4), st.integers(1, 4))


def packed(of):
    return clock.of(of.items())


@given(of=clocks, chance=st.randoms(), more=st.lists(st.integers(5, 9), unique=True))
def test_clocks_by_their_counters(of, chance, more):
    """The order of assignments does not matter; an assignment that the clock lacks is at 0."""
    ids = list({*of, *more})
    chance.shuffle(ids)
    counted = _replication.counters_of(packed(of), tuple(ids))
    assert counted == [of.get(one, 0) for one in ids]
    assert _replication.clock_of(tuple(ids), counted) == packed(dict(zip(ids, counted, strict=True)))


@pytest.mark.parametrize("wrong", [[1], [1, 2, 3], [1, -1], [1, 2**64], [1, None], [b"", 1], [[], 1]])
def test_counters_that_are_none(wrong):
    """Too few or too many counters, and counters beyond 64 bits, are refused."""
    with pytest.raises(ProtocolError):
        _replication.clock_of((1, 2), wrong)


@given(begins=clocks, told=st.none() | clocks, written=st.lists(dots, max_size=4), follow=st.booleans())
def test_the_clock_after_an_entry_is_the_oracle_s(begins, told, written, follow):
    """A given clock must cover all records; without it, records must follow each other."""
    if follow:
        begins |= {origin: 1 for origin, _ in written}
        counts = dict(begins)
        for at, (origin, _) in enumerate(written):
            counts[origin] += 1
            written[at] = origin, counts[origin]
        told = None if told is None else counts | {9: 1}
    records = [record.encode(1, origin, count, record.PUT, b"", b"") for origin, count in written]
    pairs = tuple((b"k", data) for data in records)
    wanted = oracle.ends_of(begins, told, records)
    before, asked = packed(begins), (packed(begins), None if told is None else packed(told), pairs)
    if wanted is None:
        with pytest.raises(ProtocolError):
            _replication.ends_of(*asked)
    else:
        assert _replication.ends_of(*asked) == packed(wanted)
    assert asked[0] == before, "bytes are values"


@pytest.mark.parametrize("flat", [[b"k"], [b"k", "record"], [1, b""], [b"k", b"cut"], [b"k", None]])
def test_records_that_are_none(flat):
    """Keys and records come in pairs of bytes, with valid records."""
    with pytest.raises(ProtocolError):
        _replication.records_of(flat)


@given(records=st.lists(st.tuples(st.binary(max_size=2), dots), max_size=6), left=st.sets(st.integers(0, 4)))
def test_records_of_origins_that_have_not_ended(records, left):
    """Records of ended origins are left out, and the order stays."""
    pairs = [(key, record.encode(1, origin, count, record.PUT, b"", b"")) for key, (origin, count) in records]
    after = packed({origin: 4 for _, (origin, _) in records})
    entry = LogEntry(None, tuple(pairs), packed({}), after, is_own=False)
    expected = [pair for pair, (_, (origin, _)) in zip(pairs, records, strict=True) if origin in left]
    assert [*entry.records_of(sorted(left))] == expected


@given(
    written=st.lists(st.tuples(st.binary(max_size=1), dots, st.booleans()), max_size=6),
    left=st.dictionaries(st.binary(max_size=1), dots),
)
def test_synced_records_are_forgotten(written, left):
    """A key whose last record is another one stays; the entry knows whether a record is a tombstone."""
    pairs = [
        (key, record.encode(1, *dot, record.DELETED if is_deleted else record.PUT, b"", b""))
        for key, dot, is_deleted in written
    ]
    orders = {key: record.encode(1, *dot, record.PUT, b"", b"")[:24] for key, dot in left.items()}
    expected = {
        key: order for key, order in orders.items() if order not in [data[:24] for at, data in pairs if at == key]
    }
    entry = LogEntry(None, tuple(pairs), packed({}), packed({}), is_own=True)
    _replication.forget_synced(orders, entry.records)
    assert (orders, entry.deletes) == (expected, any(is_deleted for _, _, is_deleted in written))
