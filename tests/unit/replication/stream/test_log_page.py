"""Entries of many batches are joined, and go into messages, as they are in the log."""

from __future__ import annotations

from operator import attrgetter

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication._replication import LogEntry, LogPage, first_batch
from gossipkv.replication.replica import clock, record
from tests.oracle import log_page as oracle
from tests.unit.replication.memory import Cluster

ORIGINS = (1, 2)
LONG = 6 << 10

written = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(ORIGINS), st.integers(1, 3), st.sampled_from([0, 0, 1]), st.booleans())
)


def entries_of(steps, replicas, *, size=0):
    """Return an entry for each step: the number of the replica, the origin, the records, the gap, and a new config."""
    counts, configs, found = {}, {}, []
    for position, (number, origin, more, gap, is_newer) in enumerate(steps, 10):
        counted = counts.setdefault(number, dict.fromkeys(ORIGINS, 0))
        counted[origin] += gap
        configs[number] = configs.get(number, 1) + (gap and is_newer)
        before = clock.of(counted.items())
        rows = []
        for _ in range(more):
            counted[origin] += 1
            kind = record.DELETED if counted[origin] % 3 == 0 else record.PUT
            value = bytes(size) if kind == record.PUT else b""
            rows.append((b"%d" % position, record.encode(position, origin, counted[origin], kind, b"", value)))
        clocks = before, clock.of(counted.items())
        found.append(LogEntry(replicas[number], tuple(rows), *clocks, origin == 1, position, config=configs[number]))
    return found


PARTS = attrgetter(
    "replica", "records", "before", "after", "is_own", "position", "size_bytes", "deletes", "origins", "config"
)


@given(steps=written, pages=st.integers(1, 4))
def test_joined_entries_are_the_oracle_s(steps, pages):
    """Each is as one entry with all its records would be, whatever the pages that are added."""
    replicas, page = [object() for _ in range(3)], LogPage()
    single = entries_of(steps, replicas)
    for first in range(0, len(steps), pages):
        page.add(entries_of(steps, replicas)[first : first + pages], joins=True)
    wanted = oracle.joined(
        [
            oracle.Step(
                replicas.index(one.replica), one.before, one.after, one.is_own, one.position, one.config, one.records
            )
            for one in single
        ]
    )
    whole = [
        LogEntry(replicas[one.number], one.records, one.before, one.after, one.is_own, one.position, config=one.config)
        for one in wanted
    ]
    assert [*map(PARTS, page.entries)] == [*map(PARTS, whole)]


@pytest.mark.parametrize(("joins", "size", "entries"), [(True, 0, 1), (True, LONG, 4), (False, 0, 12)])
def test_long_entries_are_not_joined(joins, size, entries):
    """Otherwise a message could have any size."""
    page = LogPage()
    page.add(entries_of([(0, 2, 1, 0, False)] * 12, [object()], size=size), joins=joins)
    assert len(page.entries) == entries


@pytest.mark.parametrize("is_cut_again", [False, True])
def test_a_node_that_was_away_gets_the_entries_of_each_replica_joined(is_cut_again):
    """Also if the link ends meanwhile, and the log is read again from the first entry that the node lacks."""
    cluster = Cluster()
    first, second, away = cluster.nodes
    cluster.cut(away)
    for number in range(20):
        (first, second)[number % 2].write(**{f"key{number}": b"v%d" % number})
        cluster.pass_s(0.02)
    cluster.crash(first)  # The end of the log is no longer in memory.
    sent = []

    def note(asker, asked, method, params):
        if method == "replica_feed" and asked is away:
            sent.extend(msgpack.unpackb(params[2]))
            if is_cut_again and len(sent) == 1:
                first.write(late=b"late")
                cluster.cut(away)

    cluster.before_answer.append(note)
    cluster.connect(first)
    cluster.pass_s(0.1)
    cluster.connect(away)
    cluster.until(lambda: cluster.is_caught_up)
    assert away.live == first.live
    assert len(sent) <= 2


@given(steps=written, most=st.integers(1, 5), most_bytes=st.integers(0, 400))
def test_a_batch_has_entries_of_one_position(steps, most, most_bytes):
    read = entries_of(steps, [object() for _ in range(3)])
    for number, entry in enumerate(read):
        entry.position = 10 + number // 3
    batch = first_batch(read, most, most_bytes)
    assert batch == read[: len(batch)]
    assert len({entry.position for entry in batch}) == bool(read)
    assert len(batch) <= most
    assert len(batch) <= 1 or sum(entry.size_bytes for entry in batch) <= most_bytes
    more = read[: len(batch) + 1]
    ends = len({entry.position for entry in more}) > 1 or len(more) > most or len(more) == len(batch)
    assert ends or sum(entry.size_bytes for entry in more) > most_bytes
