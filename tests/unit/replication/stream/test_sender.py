"""The content, the time and the order of a sender's messages."""

from __future__ import annotations

from math import inf

import pytest

from gossipkv.replication._replication import LogEntry
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica, Replica
from gossipkv.replication.replica.spaces import first_batch
from gossipkv.replication.replica.status import ReplicaStatus, SpanEnds
from gossipkv.replication.stream import sender
from gossipkv.replication.stream.cursors import LogRead, OutgoingEntries
from gossipkv.replication.stream.log_tail import Beginnings, LogTail
from gossipkv.replication.stream.sender import MAX_OF_CURSORS, MAX_UNDER_WAY, MESSAGE_ENTRIES, LogSender
from tests.unit.replication.talker import MINE, THIRD, YOURS

RELAY_S = 0.2
NAMED = (MINE, YOURS, THIRD)


class Scene:
    """A sender to the holder of `YOURS`, and a log with entries of one replica."""

    def __init__(self, *, available=True, can_take=True, goes_back=True):
        identity = ReplicaIdentity(b"table", 0, MINE)
        hosts = [AssignedReplica(one, bytes([one]), one, counts=True, available=True) for one in NAMED]
        self.copy = Replica(7, identity, first_batch(7, identity, 1, hosts)[1])
        self.copy.adopts(1, hosts)
        self.broken = set()
        self.tail, self.beginnings = LogTail(1), Beginnings(0)
        self.feed = LogSender(
            self.tail,
            1,
            relay_s=RELAY_S,
            is_broken=lambda _, origin: origin in self.broken,
            beginnings=self.beginnings,
        )
        self.told = ReplicaStatus(YOURS, clock.named(b"", NAMED), 1, can_take, available)
        self.counts = dict.fromkeys(NAMED, 0)
        self.feed.connected({self.copy: self.told}, 0.0, goes_back=goes_back)
        assert self.sent(0.0) == []  # The sender is level.

    def synced(self, origin):
        """Sync the next record of an origin; return its position in the log."""
        before = clock.of(self.counts.items())
        self.counts[origin] += 1
        after = clock.of(self.counts.items())
        self.tail.append([LogEntry(self.copy, (), before, after, origin == MINE, self.tail.end + 1)])
        self.copy.appended = self.copy.synced = after
        return self.tail.end

    def sent(self, now):
        """Return the positions that are sent now; `ships` keeps the messages."""
        self.ships = []
        while (do := self.feed.next(now)) is not None:
            assert isinstance(do, OutgoingEntries), LogRead
            self.ships.append(do)
        return [entry.position for ship in self.ships for entry in ship.entries]

    def answered(self, now, *, news=(), **counters):
        """Give the target these counters, and answer all messages in flight."""
        ids = {"mine": MINE, "yours": YOURS, "third": THIRD}
        had = clock.named(clock.of((ids[name], count) for name, count in counters.items()), NAMED)
        self.feed.hears(self.copy, self.told._replace(clock=had), now)
        for ship in self.ships:
            self.feed.answered(ship.number, news, now)
        self.ships = []


def test_level_it_sends_its_own():
    """Own entries are sent once as they are synced; other origins send their own."""
    scene = Scene()
    own, _ = scene.synced(MINE), scene.synced(THIRD)
    assert scene.sent(0.0) == [own]
    assert scene.sent(0.1) == []


def test_what_is_covered_is_passed_at_once():
    """No task looks at an idle sender again to move its place."""
    scene = Scene()
    scene.answered(0.0, yours=1)
    last = scene.synced(YOURS)
    assert scene.sent(0.0) == []
    assert scene.feed.place == last


def test_what_lies_goes_in_order_from_the_place_on():
    """After the relay time, uncovered entries of every origin are sent in order."""
    scene = Scene()
    first, other = scene.synced(MINE), scene.synced(THIRD)
    assert scene.sent(0.0) == [first]
    scene.answered(0.01, mine=1)
    assert scene.sent(0.19) == []
    assert scene.feed.place == first
    last = scene.synced(MINE)
    assert scene.sent(0.19) == [last]
    scene.answered(0.195, mine=1)  # The target could not take the entry.
    assert scene.feed.place == first
    assert scene.sent(0.5) == [other, last]


def test_what_was_dropped_goes_again_though_the_sender_is_not_at_the_end(monkeypatch):
    """Otherwise it waits for ever once as many entries are open as may be."""
    monkeypatch.setattr(sender, "MAX_OPEN", 2)
    scene = Scene()
    ats = [scene.synced(THIRD) for _ in range(3)]
    assert scene.sent(0.0) == []
    assert scene.sent(0.2) == ats[:2]
    scene.answered(0.3)
    assert scene.sent(0.4) == []
    assert scene.sent(scene.feed.due(0.4)) == ats[:2]
    scene.answered(0.6, third=2)
    assert scene.sent(0.6) == ats[2:]


def test_another_node_may_feed_for_a_relay_time():
    """A sender that need not go back waits while the target gets what it lacked at first."""
    scene = Scene()
    ats = [scene.synced(THIRD) for _ in range(3)]
    scene.feed.connected({scene.copy: scene.told}, 0.0, goes_back=False)
    assert scene.sent(0.1) == []
    assert scene.feed.lag(scene.copy) == 3
    scene.answered(0.1, third=1, yours=7)  # Own records that this node lacks count nothing.
    assert scene.feed.lag(scene.copy) == 2
    assert scene.sent(0.2) == []
    assert scene.sent(0.31) == ats[1:]


def test_what_is_under_way_does_not_lie():
    """Even with a slow target, later entries of other origins wait."""
    scene = Scene()
    scene.synced(MINE)
    assert len(scene.sent(0.0)) == 1
    scene.synced(THIRD)
    assert scene.sent(10.0) == []
    assert scene.feed.due(10.0) == inf


def test_an_origin_whose_connection_is_broken_is_not_waited_for():
    """The entries of an unreachable origin are sent at once."""
    scene = Scene()
    scene.broken.add(THIRD)
    at = scene.synced(THIRD)
    assert scene.sent(0.0) == []  # The first round passes the entry.
    assert scene.feed.due(0.0) == 0.0
    assert scene.sent(0.0) == [at]


def test_to_a_copy_that_is_not_available_all_goes():
    """A replica that is not AVAILABLE gets all entries at once and in order."""
    scene = Scene(available=False)
    assert scene.sent(0.0) == []
    ats = [scene.synced(origin) for origin in (THIRD, MINE, THIRD)]
    assert scene.sent(0.0) == ats


@pytest.mark.parametrize("are_news", [True, False])
def test_after_a_go_back_an_origin_s_entries_go_like_its_own(are_news):
    """Relaying at once lasts five relay times, and as long as answers report news."""
    scene = Scene()
    scene.synced(THIRD)
    assert scene.sent(0.0) == []
    assert len(scene.sent(0.2)) == 1
    for number in range(2, 10):
        now = 0.2 * number
        scene.answered(now, third=number - 1, news=[(scene.copy, THIRD)] if are_news else [])
        scene.synced(THIRD)
        assert len(scene.sent(now)) == (are_news or now < 1.2), number


def test_a_target_that_has_dropped_a_copy_is_connected_again():
    """A replica with its own cursor is gone at the target when the link restarts."""
    scene = Scene(can_take=False)
    assert scene.feed.positions == {YOURS: 1}
    scene.feed.disconnected()
    scene.feed.connected({}, 1.0, goes_back=True)
    assert scene.feed.positions == {}
    assert scene.sent(1.0) == []


def test_a_copy_that_cannot_take_keeps_nobody_s_place():
    """The replica has a cursor of its own; once it can take entries, it gets the missed ones in order."""
    scene = Scene(can_take=False)
    ats = [scene.synced(origin) for origin in (MINE, THIRD)]
    assert scene.sent(1.0) == scene.sent(1.0) == []
    assert (scene.feed.place, scene.feed.positions) == (ats[-1], {YOURS: 1})
    scene.told = scene.told._replace(can_take=True)
    scene.answered(1.1)
    assert scene.sent(1.1) == ats
    scene.answered(1.2, mine=1, third=1)
    assert scene.sent(1.2) == []
    assert scene.feed.is_caught_up


def test_messages_are_small():
    """Large messages would delay other senders."""
    scene = Scene()
    own = [scene.synced(MINE) for _ in range(MESSAGE_ENTRIES + 1)]
    assert scene.sent(0.0) == own
    assert [len(ship.entries) for ship in scene.ships] == [MESSAGE_ENTRIES, 1]


def test_own_places_have_half_of_the_messages():
    """Entries of level replicas continue, however far a replica with its own cursor lags."""
    scene = Scene(can_take=False)
    own = [scene.synced(MINE) for _ in range(MAX_UNDER_WAY * MESSAGE_ENTRIES)]
    assert scene.sent(0.0) == []
    scene.feed.hears(scene.copy, scene.told._replace(can_take=True), 0.0)
    assert scene.sent(0.0) == own[: MAX_OF_CURSORS * MESSAGE_ENTRIES]


def test_what_has_ended_is_covered():
    """The log names a settled assignment, which every replica has and no clock names."""
    scene = Scene()
    scene.synced(THIRD), scene.synced(MINE)
    hosts = [host for host in scene.copy.hosts if host.assignment != THIRD]
    scene.copy.adopts(2, hosts)
    named = (MINE, YOURS)
    scene.feed.hears(scene.copy, scene.told._replace(clock=clock.named(b"", named), config=2), 0.0)
    assert len(scene.sent(1.0)) == 1
    scene.feed.hears(scene.copy, scene.told._replace(clock=clock.named(scene.copy.synced, named), config=2), 1.0)
    scene.feed.answered(scene.ships[0].number, [], 1.0)
    assert scene.sent(1.0) == []
    assert scene.feed.is_caught_up


def test_who_is_no_host_is_fed_nothing():
    """A departed host is not fed; nor is a target before the local adoption of its map."""
    scene = Scene()
    hosts = [host for host in scene.copy.hosts if host.assignment != YOURS]
    scene.copy.adopts(2, hosts)
    scene.feed.adopted(scene.copy, 0.0)
    scene.synced(MINE)
    assert scene.sent(0.0) == []
    assert scene.feed.is_caught_up
    target, span = 9, SpanEnds(b"", b"")
    told = ReplicaStatus(target, b"", 3, can_take=True, available=False, span=span)
    scene.feed.hears(scene.copy, told, 0.1)
    assert scene.sent(0.1) == []
    scene.beginnings.note(
        scene.copy, (), [AssignedReplica(target, bytes([YOURS]), 1, counts=True, available=False)], scene.tail.end
    )
    scene.copy.adopts(3, [*hosts, AssignedReplica(target, bytes([YOURS]), 1, counts=True, available=False)])
    scene.feed.adopted(scene.copy, 0.2)
    at = scene.synced(MINE)
    assert scene.sent(0.2) == [at]


def test_who_has_departed_feeds_nobody():
    """Clocks of other replicas omit a settled origin, so a departed replica must not send."""
    scene = Scene()
    at = scene.synced(MINE)
    assert scene.sent(0.0) == [at]
    scene.copy.departs()
    scene.feed.adopted(scene.copy, 0.0)
    scene.answered(0.1)
    assert scene.sent(1.0) == []
    assert scene.feed.is_caught_up
    scene.feed.connected({scene.copy: scene.told}, 2.0, goes_back=True)
    assert scene.sent(2.0) == []


def test_who_is_available_by_the_map_that_is_adopted():
    """A target may have reported its new map before the local adoption and be silent since."""
    scene = Scene(available=False)
    scene.copy.adopts(2, scene.copy.hosts)
    scene.feed.adopted(scene.copy, 0.0)
    assert scene.feed.statuses[scene.copy].available
    scene.copy.adopts(3, [host._replace(available=host.assignment != YOURS) for host in scene.copy.hosts])
    scene.feed.adopted(scene.copy, 0.0)
    assert not scene.feed.statuses[scene.copy].available


@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_copy_that_is_told_of_while_the_log_is_read_misses_nothing(is_told_late):
    """After a restart replicas are placed and reported in groups, so early reads do not cover all of them."""
    feed = LogSender(LogTail(10), 1, relay_s=RELAY_S, is_broken=lambda *_: False, beginnings=Beginnings(0))
    first, other = Scene().copy, Scene().copy
    told = ReplicaStatus(YOURS, clock.named(b"", NAMED), 1, can_take=True, available=True)
    feed.connected({first: told} if is_told_late else {first: told, other: told}, 0.0, goes_back=True)
    look = feed.next(0.0)
    asked = {*feed.statuses}  # The reader sees only the replicas reported by then.
    assert isinstance(look, LogRead)
    if is_told_late:
        feed.hears(other, told, 0.0)
    before, after = clock.named(b"", NAMED), clock.of({**dict.fromkeys(NAMED, 0), MINE: 1}.items())
    entry = LogEntry(other, (), before, after, is_own=True, position=11)
    feed._tail.append([entry])
    other.appended = other.synced = after
    feed.read(look, [one for one in [entry] if one.replica in asked], 11)
    while isinstance(do := feed.next(0.0), LogRead):
        feed.read(do, [entry], 11)
    assert [one.position for one in do.entries] == [11]
