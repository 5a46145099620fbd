"""Pages of change feeds at replicas in virtual time, judged by the checker of the simulation, which plants prove."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import msgpack
import pytest

from gossipkv.errors import NotReady, TooOld
from gossipkv.replication.changes.pages import TELL_S, ChangeFeeds, ChangePage, _PlaceReader
from gossipkv.replication.changes.places import ConfigClock, FeedPlace
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import RECORD, WHOLE
from gossipkv.replication.replica.record import RecordWrite
from tests.unit.replication.maintenance.test_split import HIGH, LOW, Ranges
from tests.unit.replication.memory import TABLE, Cluster, order_of
from tests.world.replication.fed import faults_of

X = b"x"
WATCHER = b"watcher"
PUTS = {b"one": b"1", b"two": b"2", b"four": b"4"}
DELETES = [b"3", b"5"]


class Followed:
    """A cluster, and a feed of its partition that is at one node at a time."""

    def __init__(self, cluster=None, *, in_memory=False, is_snapshot=False):
        self.cluster = cluster or Cluster()
        self.place = FeedPlace(7, b"", cursor=b"" if is_snapshot else None)
        self.shown, self.told, self.puts = [], [], {}
        for node in self.cluster.nodes:
            node.replicas.tail._most_bytes = 1 << 20 if in_memory else 0
            node.log_floor, node.waiting = lambda node=node: node.floor, ParkedRequests(1 << 20)
            node.feeds = ChangeFeeds(node.replicas, node)
            node.feeds.tell = lambda *told: self.told.append(told)

    def put(self, node, value):
        """Write a record, which is synced at this node alone."""
        node.write(x=value)
        self.puts[value] = order_of(node.get(node.copy.space, RECORD + X))

    def poll(self, node, *, limit=100):
        """Take a page at a node; return the changes. Raises as the node refuses."""
        place = replace(self.place)
        changes = self.page(node, [place], limit)
        self.place = place
        self.shown += [value for key, value in changes if key == X]
        return changes

    def page(self, node, places, limit=100):
        """Take a page at a node, and let it move the places; return the changes."""
        done = []
        page = ChangePage(node.feeds, TABLE, places, WHOLE, limits=(limit, 1 << 20), watcher=WATCHER)
        page.begin(done.append)
        self.cluster.run()
        assert done == [page]
        for result in page.results:
            if isinstance(result, Exception):
                raise result
        unpacker = msgpack.Unpacker()
        unpacker.feed(page.body)
        return [(key, value) for key, value, _ in unpacker]

    def faults(self, *, is_due):
        last = self.cluster.nodes[1].live.get(X)
        return faults_of(self.shown, self.puts, [], last, is_due=is_due)


def a_lost_write(in_memory):
    """A record that one replica alone has is lost with its node; return the faults of the feed."""
    followed = Followed(in_memory=in_memory)
    one, two, _ = followed.cluster.nodes
    followed.poll(one)
    followed.put(one, b"lost")
    followed.poll(one)
    followed.cluster.cut(one)  # It never comes back.
    followed.cluster.pass_s(0.5)
    with contextlib.suppress(NotReady):  # The others would lag behind a feed that has shown it.
        followed.poll(two)
    return followed.faults(is_due=False)


def an_older_write_elsewhere(in_memory):
    """A feed has shown a record, and goes on at a replica whose log has an older one of the key."""
    followed = Followed(in_memory=in_memory)
    cluster, (one, two, _) = followed.cluster, followed.cluster.nodes
    followed.poll(two)
    cluster.cut(one)
    followed.put(one, b"older")
    cluster.pass_s(0.5)
    followed.put(two, b"newer")
    cluster.pass_s(0.5)
    assert followed.poll(two) == [(X, b"newer")]
    cluster.connect(one)
    cluster.until(lambda: cluster.is_caught_up)
    cluster.pass_s(0.5)
    followed.poll(one)
    return followed.faults(is_due=True)


def a_few_writes(in_memory):
    """A feed follows three writes page by page."""
    followed = Followed(in_memory=in_memory)
    followed.poll(followed.cluster.nodes[0])
    for number, value in enumerate((b"first", b"second", b"third")):
        followed.put(followed.cluster.nodes[number], value)
        followed.cluster.pass_s(0.5)
    while followed.poll(followed.cluster.nodes[0], limit=1):
        pass
    return followed.faults(is_due=True)


def without_the_majority(reader, reached):
    """Take each record as one that a majority has."""
    return True


def as_logged(page, reader, rows, config, *, is_ahead):
    """Give the entries of another replica's log as they are."""
    return rows


def without_the_last(page, reader, entry, *, take=ChangePage._take):
    """Pass the third write without giving it."""
    if any(b"third" in data for _, data in entry.records):
        entry = type(entry)(entry.replica, (), entry.before, entry.after, is_own=False, config=entry.config)
    return take(page, reader, entry)


CASES = {a_lost_write: (_PlaceReader, "is_stable", without_the_majority),
         an_older_write_elsewhere: (ChangePage, "_given", as_logged),
         a_few_writes: (ChangePage, "_take", without_the_last)}  # fmt: skip


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_feed_keeps_its_promises_and_a_planted_defect_does_not(case, in_memory, monkeypatch):
    assert case(in_memory) == []
    monkeypatch.setattr(*CASES[case])
    assert case(in_memory)


def test_a_write_is_shown_once_a_majority_has_it_and_its_watcher_is_told_once():
    followed = Followed()
    one, *others = followed.cluster.nodes
    followed.poll(one)
    followed.cluster.pass_s(1.0)
    assert (followed.told, one.waiting.waiting) == ([], 0)  # Nothing is done for a feed that waits.
    followed.put(one, b"1")
    assert followed.poll(one) == []
    one.waiting.wake(followed.cluster.now + TELL_S)
    assert followed.told == []
    followed.cluster.until(lambda: any(node.live == {X: b"1"} for node in others))
    followed.cluster.pass_s(0.1)
    one.waiting.wake(followed.cluster.now)
    assert followed.told == [(WATCHER, [(TABLE, 7)])]
    assert followed.poll(one) == [(X, b"1")]


def test_any_replica_goes_on_from_its_log_unless_that_begins_later():
    followed = Followed(is_snapshot=True)
    cluster, (one, two, three) = followed.cluster, followed.cluster.nodes
    followed.put(one, b"1")
    cluster.pass_s(0.5)
    assert followed.poll(one) == [(X, b"1")]
    followed.put(two, b"2")
    cluster.pass_s(0.5)
    three.trim()
    with pytest.raises(TooOld):
        followed.poll(three)
    assert followed.poll(two) == [(X, b"2")]
    assert followed.poll(three) == []
    cluster.cut(one)
    with pytest.raises(NotReady, match="too few hosts"):
        followed.poll(one)


def test_a_trimmed_log_is_read_from_memory():
    followed = Followed(in_memory=True)
    cluster, (one, two, _) = followed.cluster, followed.cluster.nodes
    followed.poll(one)
    followed.put(one, b"1")
    cluster.pass_s(0.5)
    two.trim()
    assert followed.poll(two) == [(X, b"1")]


def test_a_feed_that_goes_to_another_host_reads_the_log_from_its_last_mark(monkeypatch):
    followed = Followed()
    cluster, (one, two, _) = followed.cluster, followed.cluster.nodes
    for number in range(30):
        followed.put(one, b"%d" % number)
        cluster.pass_s(0.1)
        followed.poll(one)
    followed.put(one, b"last")
    cluster.pass_s(0.5)
    reads, read_log = [], two.read_log

    def read(spaces, position, on_log):
        reads.append(position)
        read_log(spaces, position, on_log)

    monkeypatch.setattr(two, "read_log", read)
    assert followed.poll(two) == [(X, b"last")]
    assert reads == [two.synced() - 1]


def test_a_write_notes_no_clock_of_replicas_at_rest():
    class AtRest:
        reads, config = [], 1

        @property
        def synced(self):
            self.reads.append(self)
            return b""

    one = Cluster().nodes[0]
    ChangeFeeds(one.replicas, one)
    replica = one.copy
    one.replicas.by_partition |= {(TABLE, number): AtRest() for number in range(100, 200)}
    for _ in range(3):
        one.replicas.originate({replica: [RecordWrite(X, b"1")]})
        one.sync()
    assert AtRest.reads == []
    assert [*one.replicas.tail.marks(replica)]


@pytest.mark.parametrize("writes", [[b"made", None], [b"made", b"changed", None]])
def test_a_record_that_is_made_and_deleted_while_a_snapshot_runs_comes(writes):
    followed = Followed(is_snapshot=True)
    cluster, one = followed.cluster, followed.cluster.nodes[0]
    one.write(a=b"1", b=b"2", z=b"3")
    cluster.pass_s(0.5)
    assert followed.poll(one, limit=1) == [(b"a", b"1")]
    for value in writes:
        one.write(x=value)
    cluster.pass_s(0.5)
    found = [change for _ in range(9) for change in followed.poll(one, limit=1)]
    assert [value for key, value in found if key == X] == writes
    assert {(b"b", b"2"), (b"z", b"3")} <= {*found}


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("has_written", [True, False])
@pytest.mark.parametrize("writes", ["before", "after"])
def test_a_feed_goes_on_after_its_host_was_removed(in_memory, has_written, writes):
    """Another host knows the last clock of the map before, also of a partition without any write."""
    cluster = Cluster(4)
    followed = Followed(cluster, in_memory=in_memory)
    one, two, *_ = cluster.nodes
    followed.poll(one)
    if has_written:
        followed.put(two, b"first")
        cluster.pass_s(0.5)
        assert followed.poll(one) == [(X, b"first")]
    hosts = [host for host in one.copy.hosts if host.node != one.uuid]
    cluster.cut(one)
    cluster.nodes.remove(one)
    for node in cluster.nodes:
        node.replicas.place(node.copy.identity, 2, hosts)
        cluster.run()
    cluster.pass_s(1.0)
    if writes == "after":
        assert followed.poll(two) == []
    followed.put(two, b"second")
    cluster.pass_s(0.5)
    assert followed.poll(two) == [(X, b"second")]


@pytest.mark.parametrize("limit", [1, 100])
def test_a_child_gets_the_rest_of_its_parents_entries_that_begin_before_its_place(limit):
    """The page is read from the sibling's place, and has the parent's entries as one of each child."""
    cluster = Ranges()
    followed, one = Followed(cluster), cluster.nodes[0]
    followed.poll(one)
    early = followed.place
    for value in (b"1", b"2"):
        cluster.write(1, b"z", value)
        cluster.pass_s(0.5)
        late = replace(followed.place)
        assert followed.poll(one) == [(b"z", value)]
    cluster.divide()
    cluster.pass_s(0.5)
    places = [replace(early, partition=LOW), replace(late, partition=HIGH)]
    assert followed.page(one, places, limit) == [(b"z", b"2")]
    assert places[1].delivered.covers(ConfigClock(one.replicas.by_partition[TABLE, HIGH].synced, 2))


@pytest.mark.parametrize(
    ("shown", "last", "fault"),
    [
        ([b"one", b"two", None, b"four"], b"four", ""),
        ([b"one", b"one", b"four"], b"four", ""),
        ([None, b"four", None], None, ""),
        ([b"two", b"one", b"four"], b"four", "follows a later version"),
        ([b"one", None, b"two", b"four"], b"four", "follows a later version"),
        ([b"one", b"two"], b"four", "it ends with b'two'"),
        ([], b"four", "it ends with 'nothing'"),
    ],
)
def test_the_checker_takes_versions_in_order_alone(shown, last, fault):
    faults = faults_of(shown, PUTS, DELETES, last, is_due=True)
    assert [fault in found for found in faults] == [True] * bool(fault)


def test_a_clock_of_an_older_config_does_not_have_all_of_a_newer_one():
    """The newer one no longer names the assignments that have ended, of which it has everything."""
    older, newer = ConfigClock(clock.of([(1, 3)]), 1), ConfigClock(clock.of([(2, 0)]), 2)
    assert older.covers(newer)
    assert not older.has_all(newer)
    assert newer.has_all(older)
