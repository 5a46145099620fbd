"""Marks of the log's end: clocks of replicas at positions, for change feeds that change their node."""

from gossipkv.replication._replication import LogEntry
from gossipkv.replication.replica import clock
from gossipkv.replication.stream import log_tail
from gossipkv.replication.stream.log_tail import LogTail


def write(tail, replica, counter):
    """Append the entry of a replica's write."""
    before, after = clock.of([(1, counter - 1)]), clock.of([(1, counter)])
    tail.append([LogEntry(replica, (), before, after, is_own=True, position=tail.end + 1, config=5)])


def test_a_replica_gets_a_mark_for_each_part_of_the_log_that_fits_into_memory():
    tail = LogTail(10, most_bytes=64 * 3)  # Three entries.
    for counter in range(1, 8):
        write(tail, "busy", counter)
    write(tail, "at rest until now", 4)
    assert [*tail.marks("busy")] == [(14, clock.of([(1, 4)]), 5), (10, clock.of([(1, 0)]), 5)]
    assert [*tail.marks("at rest until now")] == [(17, clock.of([(1, 3)]), 5)]
    tail.let_go("busy")
    assert [*tail.marks("busy")] == []


def test_the_oldest_marks_of_all_replicas_are_dropped_first(monkeypatch):
    monkeypatch.setattr(log_tail, "MAX_MARKS", 10)
    tail = LogTail(0, most_bytes=0)
    for counter in range(1, 4):
        for replica in range(4):
            write(tail, replica, counter)
    tail.let_go(0)
    write(tail, 1, 4)
    assert [[position for position, _, _ in tail.marks(replica)] for replica in range(4)] == [
        [], [12, 9, 5], [10, 6], [11, 7, 3],
    ]  # fmt: skip
