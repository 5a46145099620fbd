"""Messages from a peer: entries and clocks in any order and of any age."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import NotReady, Overloaded, ProtocolError, StorageError
from gossipkv.replication._replication import new_shares
from gossipkv.replication.maintenance.tombstone_gc import confirmed
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.stream.receiver import MAX_BYTES
from gossipkv.storage.engine.shell import Batch
from tests.unit.replication.memory import TABLE, Cluster
from tests.unit.replication.talker import LINK, MINE, THIRD, YOURS, Talker, entry, made
from tests.unit.table.record_nodes import CONFIG

YEAR = 365 * 86400 * 1000 << 16


@pytest.fixture
def talker():
    return Talker()


def test_entries_that_overlap_come_twice_or_late(talker):
    """Covered entries leave no trace in the log, and each answer has the replica's position."""
    assert talker.feed(entry(1, 2)) == [[[[0, [0, 2, 0], MINE, talker.copy.config, True]], []]]
    talker.feed(entry(2, 4))
    appended = talker.replicas.tail.end
    for again in (entry(1, 2), entry(2, 4), entry(3, 3)):
        assert talker.feed(again)[0][0][0][1] == [0, 4, 0]
    assert talker.replicas.tail.end == appended
    assert talker.value() == b"4"


def test_what_seldom_changes_is_answered_once(talker):
    """Only the first answer on a link has assignment and config, until they change."""
    stand = [MINE, talker.copy.config, True]
    answers = [talker.feed(entry(count, count))[0][0][0] for count in (1, 2, 3)]
    assert answers == [[0, [0, 1, 0], *stand], [0, [0, 2, 0]], [0, [0, 3, 0]]]
    talker.replicas.place(talker.copy.identity, talker.copy.config + 1, talker.copy.hosts)
    stand[1] += 1
    answers = [talker.feed(entry(count, count))[0][0][0] for count in (4, 5)]
    assert answers == [[0, [0, 4, 0], *stand], [0, [0, 5, 0]]]
    talker.begin()
    assert talker.feed(entry(5, 5))[0][0][0] == [0, [0, 5, 0], *stand]


def test_a_confirmation_of_few_words(talker):
    """A short answer counts under the assignment and config of the previous answer, not of a report in between."""
    talker.connect()
    reached, config = [], talker.copy.config
    for rows in ([[0, [1, 0, 0], YOURS, config, True]], [[0, [2, 0, 0]]]):
        counter = talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})[talker.copy.assignment]
        talker.replicas.acks[talker.copy].wait("majority", counter, lambda: reached.append(True))
        talker.records.run()
        assert "replica_feed" in talker.pump()
        (on_reply,) = [reply for method, _, reply in talker.asked if method == "replica_feed"]
        talker.tell((0, 0, 0), config - 1)
        on_reply(msgpack.packb([rows, []]))
    assert reached == [True, True]


def test_an_answer_that_is_late(talker):
    """A late answer sets back neither clock nor config."""
    talker.connect()
    copy, config = talker.copy, talker.copy.config
    talker.replicas.originate({copy: [RecordWrite(b"k", b"v")]})
    talker.records.run()
    assert "replica_feed" in talker.pump()
    (on_reply,) = [reply for method, _, reply in talker.asked if method == "replica_feed"]
    talker.tell((1, 2, 0), config)
    on_reply(msgpack.packb([[[0, [1, 1, 0], YOURS, config - 1, True]], []]))
    theirs = dict(confirmed(talker.replicas, copy))[talker.peer.uuid]
    assert theirs == clock.of([(MINE, 1), (YOURS, 2), (THIRD, 0)])


def test_an_answer_that_is_late_takes_nothing_back(talker):
    """A write keeps its confirmations when an older answer arrives later."""
    talker.connect()
    copy, config, reached = talker.copy, talker.copy.config, []
    talker.replicas.originate({copy: [RecordWrite(b"k", b"v")]})
    talker.records.run()
    assert "replica_feed" in talker.pump()
    (on_reply,) = [reply for method, _, reply in talker.asked if method == "replica_feed"]
    counter = talker.replicas.originate({copy: [RecordWrite(b"k", b"w")]})[copy.assignment]
    talker.replicas.acks[copy].wait("majority", counter, lambda: reached.append(True))
    talker.tell((2, 0, 0), config)
    on_reply(msgpack.packb([[[0, [1, 0, 0], YOURS, config - 1, True]], []]))
    assert not reached, "it is not synced here"
    talker.records.run()
    assert reached


def test_an_entry_that_skips(talker):
    """An early entry waits for its predecessor for the relay time; then it is dropped, and the clock stays."""
    assert talker.feed(entry(3, 3))[0][0][0][1] == [0, 0, 0]
    talker.feed(entry(1, 2))
    assert talker.clock == [0, 3, 0]
    talker.feed(entry(5, 5))
    talker.records.now += 0.2
    talker.pump()
    talker.feed(entry(4, 4))
    assert (talker.clock, talker.value()) == ([0, 4, 0], b"4")


def test_so_much_is_kept_of_a_peer(talker, monkeypatch):
    """Early entries beyond the limit are dropped and sent again."""
    monkeypatch.setattr("gossipkv.replication.stream.receiver.KEPT_BYTES", 150)
    for count in (3, 2, 1):
        talker.feed(entry(count, count))
    assert talker.clock == [0, 1, 0]
    talker.feed(entry(2, 2))
    assert talker.clock == [0, 3, 0]


def test_what_was_kept_is_confirmed_at_once(talker):
    """The feed was answered before, so the new clock is reported right after the sync."""
    talker.connect()
    talker.feed(entry(2, 2))
    talker.feed(entry(1, 1))
    assert "replica_tell" in talker.pump()


def test_what_may_have_to_be_sent_is_looked_at_at_once(talker):
    """An entry of another origin waits for a part of the relay time, unless that origin's entries are relayed now."""
    talker.connect()
    talker.pump()
    peer = talker.replicas.peers[talker.peer.uuid]
    talker.feed(entry(1, 1))
    talker.feed(entry(2, 2))
    assert peer.due == talker.records.now + 0.025
    talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})
    talker.records.run()
    assert peer.due == 0.0
    assert "replica_feed" in talker.pump()
    talker.records.now += 0.3
    talker.pump()
    assert peer.sender.is_passing, "the peer has reported none of these"
    talker.feed(entry(3, 3))
    assert peer.due == 0.0


def test_a_covered_record_does_not_come_back(talker):
    """A later record of the key may have existed here as a tombstone that was collected."""
    talker.feed(entry(1, 2, time=7))
    del talker.node.spaces[talker.copy.space][b"\1k"]
    talker.feed([0, [0, 0, 0], [0, 3, 0], [*made(1, b"back"), *made(3, b"new", key=b"other")]])
    assert talker.value() is None
    assert talker.value(b"other") == b"new"


def test_a_later_record_that_is_not_synced_yet(talker):
    """An older record loses to the unsynced one."""
    talker.node.syncs = False
    talker.feed(entry(1, 1, time=9), syncs=False)
    talker.feed([0, [0, 0, 0], [0, 0, 1], made(1, b"older", origin=THIRD, time=8)], syncs=False)
    talker.node.sync()
    assert (talker.value(), talker.clock) == (b"1", [0, 1, 1])


def test_nothing_is_shown_fed_or_confirmed_before_it_is_synced(talker):
    """Unsynced local writes and entries are not read, acknowledged, reported or sent."""
    talker.connect()
    talker.node.syncs = False
    reached = []
    counter = talker.replicas.originate({talker.copy: [RecordWrite(b"mine", b"value")]})[talker.copy.assignment]
    talker.replicas.acks[talker.copy].wait("one", counter, lambda: reached.append(True))
    assert talker.feed(entry(1, 1), syncs=False) == []
    talker.records.now += 0.15
    assert (talker.clock, reached, talker.value(b"mine"), talker.pump()) == ([0, 0, 0], [], None, [])
    talker.node.sync()
    assert (talker.clock, reached, talker.value(b"mine")) == ([1, 1, 0], [True], b"value")
    assert "replica_feed" in talker.pump()


def test_a_former_life(talker):
    """Entries and reports on an unknown or replaced link are refused."""
    for node, link in ((talker.third.uuid, LINK), (talker.peer.uuid, LINK + 1), (talker.peer.uuid, LINK - 1)):
        with pytest.raises(NotReady, match="begun"):
            talker.replicas.take_entries(node, link, [entry(1, 1)], pytest.fail)
        with pytest.raises(NotReady, match="begun"):
            talker.replicas.take_report(node, link, [], whole=False)
    talker.feed(entry(2, 2))
    talker.begin()  # Early entries of the former link are dropped.
    talker.feed(entry(1, 1))
    assert talker.clock == [0, 1, 0]


def test_a_tell_is_answered_if_there_is_something_to_tell():
    """Only news is reported: a replica that was named again, or has changed."""
    talker = Talker()
    assert len(talker.name()) == 2
    assert len(talker.tell((0, 0, 0))) == 1
    talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})
    talker.records.run()
    assert talker.tell((0, 0, 0))[1][1] == [1, 0, 0]
    assert len(talker.tell((0, 0, 0))) == 1


def test_another_assignment(talker):
    """The counters of an unnamed origin are covered, and its records are ignored."""
    row = [1, talker.table, 0, YOURS, talker.copy.config, [MINE, YOURS, 9], [0, 0, 1], True, False]
    talker.replicas.take_report(talker.peer.uuid, LINK, [row], whole=False)
    ended = [1, [0, 0, 0], [0, 0, 1], made(1, b"ended", origin=9)]
    talker.feed(ended)
    assert (talker.clock, talker.value()) == ([0, 0, 0], None)
    talker.feed([1, [0, 0, 1], [0, 1, 1], made(1, b"goes on")])
    assert (talker.clock, talker.value()) == ([0, 1, 0], b"goes on")
    unknown = [2, bytes(16), 5, YOURS, talker.copy.config, [MINE], [0], True, False]
    assert msgpack.unpackb(talker.replicas.take_report(talker.peer.uuid, LINK, [unknown], whole=False))[1:] == []
    assert talker.feed([2, [0], [1], []]) == [[[], []]]


@pytest.mark.parametrize("off_by", [-1, 1])
def test_entries_of_another_config(talker, off_by):
    """Entries of an older config are merged; entries of a newer config wait for its adoption."""
    own, config = talker.copy.config, talker.copy.config + off_by
    taken = [0, 1, 0] if off_by < 0 else [0, 0, 0]
    talker.begin(config=config)
    assert talker.feed(entry(1, 1)) == [[[[0, taken, MINE, own, True]], []]]
    row = [1, talker.table, 0, YOURS, own + 2, [MINE, YOURS, THIRD, 9], [0, 1, 0, 1], True, False]
    talker.replicas.take_report(talker.peer.uuid, LINK, [row], whole=False)
    talker.feed([1, [0, 1, 0, 0], None, made(1, b"late", origin=9, key=b"l")], [1, [0, 1, 0, 1], None, made(2, b"2")])
    assert (talker.clock, talker.value(b"l")) == (taken, None)
    hosts = [*talker.copy.hosts, talker.copy.hosts[0]._replace(assignment=9, node=bytes(16))]
    talker.replicas.place(talker.copy.identity, own + 2, hosts)
    talker.records.run()
    assert (talker.value(), talker.value(b"l")) == (b"2", b"late")


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_confirmation_of_another_config(talker, off_by):
    """The confirmation may come from other hosts, so it counts only under the same config."""
    reached = []
    counter = talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})[talker.copy.assignment]
    talker.replicas.acks[talker.copy].wait("majority", counter, lambda: reached.append(True))
    talker.records.run()
    talker.tell((1, 0, 0), talker.copy.config + off_by)
    assert not reached
    if off_by < 0:
        talker.tell((1, 0, 0))
    else:
        talker.replicas.place(talker.copy.identity, talker.copy.config + 1, talker.copy.hosts)
    assert reached


def test_a_config_is_confirmed_once_it_is_synced(talker):
    """After a power loss this node may go by the former config."""
    copy, config = talker.copy, talker.copy.config
    talker.node.syncs = False
    talker.replicas.place(copy.identity, config + 1, copy.hosts)
    assert len(talker.tell((0, 0, 0))) == 1  # Only the time: the status is unchanged.
    talker.node.sync()
    assert talker.tell((0, 0, 0))[1][3] == config + 1


def test_a_confirmation_of_what_was_never_sent(talker):
    """A peer with more of this replica's records than it wrote proves an older disk; the replica stops writing."""
    talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})
    talker.tell((1, 0, 0))
    assert talker.replicas.may_originate(talker.copy)
    for _ in range(2):
        talker.tell((2, 0, 0))
    assert talker.asides == [talker.copy]
    assert not talker.replicas.may_originate(talker.copy)
    talker.records.now += 10
    assert not talker.replicas.may_originate(talker.copy)
    talker.feed([0, [1, 0, 0], [2, 0, 0], made(2, b"of mine", origin=MINE, time=YEAR)])
    assert (talker.clock, talker.value()) == ([2, 0, 0], b"of mine")


@pytest.mark.parametrize("counter", [2, (1 << 64) - 1])
@pytest.mark.parametrize("records", [[], made(2, origin=MINE)])
def test_records_of_its_own_that_it_never_gave_out(talker, counter, records):
    """A peer that feeds such records without a report is refused, and counters continue."""
    talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})
    with pytest.raises(ProtocolError, match="after record 1, which is its last"):
        talker.feed([0, [1, 0, 0], [counter, 0, 0], records])
    assert talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"w")]}) == {MINE: 2}


@pytest.mark.parametrize("time_ms", [-1, 1 << 47, (1 << 64) - 1])
def test_a_time_of_day_that_cannot_be(talker, time_ms):
    """A deadline would exceed 64 bits, so the link starts anew."""
    talker.replicas.connected(talker.peer.uuid)
    (_, _, on_reply) = talker.asked.pop()
    on_reply(msgpack.packb([time_ms]))
    assert not talker.replicas.reaches(talker.peer.uuid)
    assert talker.replicas.skew.deadline(talker.peer.uuid, 600.0) < 1 << 64


def test_who_leaves_originates_nothing(talker):
    """A leaving host still merges and sends entries."""
    own, *others = talker.copy.hosts
    assert talker.replicas.may_originate(talker.copy)
    talker.replicas.place(talker.copy.identity, talker.copy.config + 1, [own._replace(counts=False), *others])
    talker.records.run()
    assert not talker.replicas.may_originate(talker.copy)
    talker.feed(entry(1, 1))
    assert (talker.clock, talker.value()) == ([0, 1, 0], b"1")


def test_times_a_year_ahead(talker):
    """The records are merged, and later writes win."""
    talker.feed(entry(1, 1, time=YEAR * 60))
    talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"later")]})
    talker.records.run()
    assert talker.value() == b"later"
    assert talker.copy.time > YEAR * 60


def test_the_last_time_there_is(talker):
    """Nothing is written after the last time, but entries are still merged."""
    talker.feed(entry(1, 1, time=(1 << 64) - 1))
    assert not talker.replicas.may_originate(talker.copy)
    assert "near the largest possible one" in talker.replicas.refusal(talker.copy)
    talker.feed(entry(2, 2, key=b"other"))
    assert (talker.clock, talker.value(), talker.value(b"other")) == ([0, 2, 0], b"1", b"2")


def test_the_time_of_a_former_life():
    """The state keeps the last time, so a clock that was set back reuses none."""
    talker = Talker()
    talker.feed(entry(1, 1, time=YEAR))
    state = talker.node.get(talker.copy.space, b"\0c")
    again = type(talker.copy)(talker.copy.space, talker.copy.identity, state)
    again.adopts(talker.copy.config, talker.copy.hosts)
    new_shares(Batch(), {again: [RecordWrite(b"k", b"later")]}, lambda _: 1)
    assert again.time > YEAR


def test_a_store_that_is_full_or_closed(talker):
    """A full store merges nothing and reports the old position; a closed store is an error."""
    talker.node.refuses = Overloaded("full")
    assert talker.feed(entry(1, 1))[0][0][0][1] == [0, 0, 0]
    with pytest.raises(Overloaded):
        talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})
    talker.node.refuses = StorageError("closed")
    with pytest.raises(StorageError):
        talker.feed(entry(1, 1))
    talker.node.refuses = None
    assert talker.feed(entry(1, 1))[0][0][0][1] == [0, 1, 0]
    assert talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})[talker.copy.assignment] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        [0, [0, 0, 0], None],
        [0, [0, 0, 0], None, [b"k"]],
        [0, [0, 0, 0], None, [b"k", b"no record"]],
        [0, [0, 0, 0], None, [b"k", None]],
        [0, None, None, made(1)],  # The start of the entry is missing.
        [0, [0, 0], None, made(1)],
        [0, [0, 0, -1], None, made(1)],
        [0, [0, 0, 0], None, made(2)],  # The counter skips a record.
        [0, [0, 0, 0], [0, 0, 0], made(1)],  # The clock after the entry does not cover it.
        [0, [0, 2, 0], [0, 1, 0], made(1)],  # The clock goes back.
    ],
)
def test_what_is_no_entry(talker, wrong):
    with pytest.raises(ProtocolError):
        talker.feed(entry(1, 1), wrong)
    assert talker.clock == [0, 0, 0]


@pytest.mark.parametrize("ids", [[1, -2, 3], [1, 2, 2], [1, 2, 1 << 64], [1, 2, None]])
def test_what_is_no_row(talker, ids):
    """Invalid or repeated assignments in a row yield one clear error."""
    row = [0, talker.table, 0, YOURS, talker.copy.config, ids, [0, 0, 0], True, False]
    with pytest.raises(ProtocolError, match="distinct ids"):
        talker.replicas.take_report(talker.peer.uuid, LINK, [row], whole=False)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [7],
        b"",
        b"\xc1",
        *map(
            msgpack.packb, (None, 7, [7], [[], [], []], [[[9, [0, 0, 0], YOURS, 1, True]], []], [[[0, [0, 0, 0]]], []])
        ),
    ],
)
def test_an_answer_that_is_none(talker, wrong):
    """The link restarts after the relay time, and unanswered entries are sent again."""
    talker.connect()
    talker.replicas.originate({talker.copy: [RecordWrite(b"k", b"v")]})
    talker.records.run()
    assert "replica_feed" in talker.pump()
    talker.asked[0][2](wrong)
    assert not talker.replicas.reaches(talker.peer.uuid)
    talker.records.now += 0.2
    assert talker.pump() == ["replica_tell"]
    talker.asked[0][2](msgpack.packb([[0, [0, 0, 0], YOURS, talker.copy.config, True]]))
    assert "replica_feed" in talker.pump()


def test_an_origin_that_the_map_here_does_not_name(talker):
    """The records wait for the map, also in an entry with records of known origins."""
    link = [0, talker.table, 0, YOURS, CONFIG, [MINE, YOURS, THIRD, 9], [0, 0, 0, 0], True, False]
    talker.replicas.take_report(talker.peer.uuid, LINK, [link], whole=False)
    flat = made(1, b"value") + made(1, b"of none", origin=9, key=b"l")
    talker.feed([0, [0, 0, 0, 0], [0, 1, 0, 1], flat])
    assert (talker.value(), talker.value(b"l")) == (b"value", None)
    assert clock.entries(talker.copy.synced) == [(MINE, 0), (YOURS, 1), (THIRD, 0)]


def test_what_was_kept_is_taken_in_batches_for_which_the_log_has_room(talker):
    """A long chain of kept entries does not exceed the batch size."""
    sizes, append = [], talker.node.append
    talker.node.append = lambda batch, on_synced: (sizes.append(batch.size_bytes), append(batch, on_synced))[1]
    for count in (2, 3, 4):
        talker.feed([0, [0, count - 1, 0], None, made(count, bytes(MAX_BYTES))])
    talker.feed(entry(1, 1))
    assert talker.copy.synced == talker.copy.appended
    assert len(sizes) == 4
    assert max(sizes) < 2 * MAX_BYTES


def test_when_copies_can_be_written_to():
    """Writes need the map and reports of all hosts; after a while a majority is enough."""
    cluster = Cluster()
    node = cluster.nodes[0]
    for one in cluster.nodes:
        cluster.cut(one)
    assert not node.replicas.can_answer
    cluster.connect()
    cluster.pass_s(0.1)
    assert not node.replicas.can_answer
    node.replicas.maps[TABLE] = node.copy.config
    assert node.replicas.can_answer
    for lost, is_enough in ((cluster.nodes[2], True), (cluster.nodes[1], False)):
        cluster.cut(lost)
        node.replicas._began = cluster.now
        assert not node.replicas.can_answer
        cluster.pass_s(1.1)
        assert node.replicas.can_answer is is_enough
