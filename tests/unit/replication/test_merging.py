"""Merging of entries against dictionaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication._replication import LogEntry, Merged, append_records, encode_state, put_records
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD, ReplicaIdentity
from gossipkv.replication.replica.replica import Replica
from gossipkv.storage.engine._engine import operations
from gossipkv.storage.engine.shell import Batch
from tests.oracle import merging as oracle

SPACE = 7
NAMED, ENDED = (1, 2, 3), 4
KEYS = [b"", b"a", b"b", b"b\0"]


@st.composite
def written(draw, origin, counter):
    kind = draw(st.sampled_from([record.PUT, record.DELETED]))
    value = b"" if kind == record.DELETED else draw(st.binary(max_size=3))
    return record.encode(draw(st.integers(1, 3)), origin, counter, kind, b"", value)


@st.composite
def histories(draw):
    """Draw writes one after the other: the clock before each and after the last, and each key with its record."""
    clocks, rows = [dict.fromkeys((*NAMED, ENDED), 0)], []
    for origin in draw(st.lists(st.sampled_from([*NAMED, ENDED]), max_size=12)):
        clocks.append(clocks[-1] | {origin: clocks[-1][origin] + 1})
        rows.append((draw(st.sampled_from(KEYS)), draw(written(origin, clocks[-1][origin]))))
    return clocks, rows


def packed(of):
    return clock.of(of.items())


@given(data=st.data(), history=histories())
def test_entries_are_merged_as_by_the_oracle(data, history):
    """Records that stand may be synced or not; an entry waits, brings nothing new, or is merged."""
    clocks, rows = history
    place = st.integers(0, len(rows))
    begin = data.draw(place)
    reached = {origin: clocks[begin][origin] for origin in NAMED}
    replica = Replica(SPACE, ReplicaIdentity(b"table", 0, 1), encode_state(0, 1, packed(reached), packed(reached)))
    standing = dict(rows[:begin])
    synced = {key: value for key, value in standing.items() if data.draw(st.booleans())}
    pending = {key: value for key, value in standing.items() if key not in synced}
    append_records(replica, pending.items(), replica.appended)

    def read(space, row):
        assert (space, row[:1]) == (SPACE, RECORD)
        return synced.get(row[1:])

    merged, state = Merged(replica), oracle.State(reached, standing)
    for first, end in data.draw(st.lists(st.tuples(place, place).map(sorted), max_size=4)):
        records = rows[first:end]
        before, after = clocks[first], clocks[end]
        entry = LogEntry(replica, tuple(records), packed(before), packed(after), is_own=False)
        wanted = oracle.merge(state, before, after, records)
        assert merged.has(entry) == (wanted is state)
        size = merged.take(entry, read)
        assert size == (None if wanted is None else 0 if wanted is state else entry.size_bytes)
        state = wanted or state
    changed = {key: value for key, value in state.records.items() if value != standing.get(key)}
    assert (merged.before, merged.after) == (packed(reached), packed(state.clock))
    assert merged.won == changed
    assert merged.time >= max((record.decode(value).time for value in changed.values()), default=0)
    if merged.relieves:  # A put that lost to a later delete counts, too.
        assert all(record.is_deleted(value) and key in standing for key, value in changed.items())
    batch = Batch()
    put_records(batch, SPACE, changed.items())
    assert {key: value for _, _, key, value in operations(batch.payload)} == oracle.rows(changed)
