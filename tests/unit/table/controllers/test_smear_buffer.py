"""Smeared puts: the conditions, the time of forwarding, and faults."""

from __future__ import annotations

import random

import msgpack
import pytest

from gossipkv.errors import BadRequest, Overloaded, StorageError, Unknown
from gossipkv.keyspace.time_key import TimeKey
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica.hlc import COUNT_BITS
from gossipkv.replication.replica.smeared import LATEST_MS
from gossipkv.table.controllers.smear_schedule import MAX_WAIT_MS
from tests.unit.table.record_nodes import TOKEN, Records

SECONDS = TimeKey(0, 4, "s")
SHORT, LONG, LAST = ((100).to_bytes(4, "big"), (130).to_bytes(4, "big"), (9000).to_bytes(4, "big"))
KEY = SHORT + b"k"
ACCEPTED = {"accepted": True}
WAIT_S = MAX_WAIT_MS / 1000 + 3


class Smeared(Records):
    """Three nodes: the first alone holds `t`, whose second range is of half a minute; the third smears."""

    def __init__(self, **table):
        super().__init__(3)
        self.now = 10_000.0
        self.id = self.make(
            "t", RANGE, firsts=[b"", SHORT, LONG, LAST], holders=lambda _: self.nodes[:1],
            **{"time_key": SECONDS, **table},
        )  # fmt: skip
        self.host, self.other, self.smearer = self.nodes
        for node in self.nodes:
            node.accepts()

    def pass_s(self, seconds):
        """Let time pass while nodes forward their due puts."""
        for _ in range(int(seconds)):
            for node in self.nodes:
                node.accepting.look()
            super().pass_s(1.0)

    def put(self, value, key=KEY, **options):
        return self.smearer.outcome("put", "t", key, value, *([options] if options else []))

    def value(self, key=KEY):
        return self.host.call("get", "t", key)[0]

    @property
    def copy(self):
        return next(one for one in self.host.replicas.by_partition.values() if one.bounds.has(KEY))

    def crash(self, node):
        """Drop the unsynced records of a node, and begin its next life."""
        node.unsynced.clear()
        node.syncs = True
        node.smeared = node.smeared if node.smeared in node.spaces else None
        node.accepts()


@pytest.fixture
def smeared():
    return Smeared()


def test_a_put_of_a_short_range_is_kept_and_comes_to_its_host(smeared):
    """The put is synced and answered without a token; the host gets it within two minutes, and the buffer is empty."""
    assert smeared.put(b"v") == ACCEPTED
    assert smeared.value() is None
    told = smeared.smearer.accepting.backlog_of(smeared.id)
    assert (told["puts"], told["why"], 0 < told["until_s"] <= MAX_WAIT_MS / 1000) == (1, None, True)
    smeared.pass_s(WAIT_S)
    assert smeared.value() == b"v"
    assert smeared.host.asked == ["table_accepted"]
    assert smeared.smearer.accepting.backlog_of(smeared.id) is None
    assert len(smeared.smearer.spaces[smeared.smearer.smeared]) == 1  # The marker of the space is left.


@pytest.mark.parametrize("options", [
    {"token": b""}, {"level": "one"}, {"level": "majority"}, {"smear": False}, {"smear": True, "token": b""},
])  # fmt: skip
def test_who_says_more_gets_it_at_once(smeared, options):
    """A token, even an empty one, a level or `smear=False` makes a put immediate."""
    assert smeared.put(b"v", **options) == TOKEN
    assert smeared.value() == b"v"


@pytest.mark.parametrize("key", [LONG, b"\0\0\0\0", LAST, b"\xff" * 9])
def test_other_ranges_are_not_smeared(smeared, key):
    """Ranges of a minute or more, the first range and the last one are not smeared."""
    assert smeared.put(b"v", key) == TOKEN
    assert smeared.value(key) == b"v"


def test_where_nothing_is_smeared():
    """Smearing needs a node that is no host, a single put, a right clock, and the setting on table and node."""
    smeared = Smeared()
    assert smeared.host.call("put", "t", KEY, b"v") == TOKEN
    assert smeared.smearer.call("delete", "t", KEY) == TOKEN
    assert smeared.smearer.call("put_many", "t", [[KEY, b"w"]], {"smear": True}) == TOKEN
    smeared.smearer.replicas.skew.hears(b"other", 10**9, smeared.now)
    assert smeared.put(b"x") == TOKEN
    smeared = Smeared(smears=False)
    assert smeared.put(b"v") == TOKEN
    smeared = Smeared(time_key=None)
    assert smeared.put(b"v") == TOKEN
    smeared = Smeared()
    smeared.smearer.accepts(is_on=False)
    assert smeared.put(b"v", smear=True) == TOKEN


@pytest.mark.parametrize("ahead_s", [0, 40])
def test_what_is_later_stays_by_the_clock_of_a_host_that_is_ahead(smeared, ahead_s):
    """A put accepted after a delete wins, and so does a delete after such a put."""
    smeared.host.skew_s, late = ahead_s, SHORT + b"late"
    smeared.smearer.replicas.skew.hears(smeared.host.uuid, smeared.host.now_ms(), smeared.now)
    smeared.host.call("delete", "t", KEY)
    smeared.pass_s(1)
    assert [smeared.put(b"v"), smeared.put(b"v", late)] == [ACCEPTED] * 2
    smeared.pass_s(1)
    smeared.host.call("delete", "t", late)
    smeared.pass_s(WAIT_S)
    assert (smeared.value(), smeared.value(late)) == (b"v", None)


@pytest.mark.parametrize("method", ["put", "put_many"])
def test_a_key_without_time_is_refused(smeared, method):
    """The error names the bytes of the time; a delete of such a key is allowed."""
    rows = [b"abc", b"v"] if method == "put" else [[[KEY, b"v"], [b"abc", b"v"]]]
    error = smeared.smearer.outcome(method, "t", *rows)
    assert type(error) is BadRequest
    assert error.message == (
        "the keys of this table have their time in s at bytes 0 to 3, so a key needs at least 4 bytes; "
        "'abc' has 3 bytes"
    )
    assert smeared.value() is None
    assert smeared.smearer.call("delete", "t", b"abc") == TOKEN


def test_it_is_answered_once_it_is_synced(smeared):
    """A crash before the sync loses the put, which was not acknowledged."""
    smeared.smearer.syncs = False
    answers = smeared.smearer.begin("put", "t", KEY, b"v")
    smeared.run()
    assert answers == []
    smeared.crash(smeared.smearer)
    smeared.pass_s(WAIT_S)
    assert ACCEPTED not in answers
    assert smeared.value() is None


def test_what_is_not_synced_in_time_is_unknown_and_comes_all_the_same(smeared):
    """The put may become visible later, and does."""
    smeared.smearer.syncs = False
    answers = smeared.smearer.begin("put", "t", KEY, b"v", {"timeout_ms": 500})
    Records.pass_s(smeared, 1.0)
    assert [type(answer) for answer in answers] == [Unknown]
    smeared.smearer.syncs = True
    smeared.smearer.sync()
    smeared.pass_s(WAIT_S)
    assert smeared.value() == b"v"


def test_what_waits_outlives_a_crash(smeared):
    """The next life counts and forwards the puts within two minutes, whatever the wall clock says."""
    for number in range(300):
        assert smeared.put(b"v", SHORT + b"%d" % number) == ACCEPTED
    smeared.smearer.now_ms = lambda: 1000  # The clock is hours slow.
    smeared.smearer.replicas.skew.most_ms = 1e9
    smeared.crash(smeared.smearer)
    assert smeared.smearer.accepting.backlog_of(smeared.id)["puts"] == 300
    smeared.pass_s(WAIT_S)
    assert [smeared.value(SHORT + b"%d" % number) for number in range(300)] == [b"v"] * 300
    assert smeared.smearer.accepting.waiting == 0


def test_an_answer_that_is_lost_changes_nothing(smeared):
    """The put is forwarded again with its own time, so it does not hide a later write."""
    smeared.put(b"early")
    answer, lost = smeared.host.answer, []

    def lose(method, params, on_result):
        answer(method, params, lost.append if method == "table_accepted" else on_result)

    smeared.host.answer = lose
    smeared.pass_s(WAIT_S)
    assert lost
    assert smeared.value() == b"early"
    assert smeared.host.call("put", "t", KEY, b"late", {"level": "one"}) == TOKEN
    smeared.crash(smeared.smearer)
    smeared.host.answer = answer
    smeared.pass_s(WAIT_S)
    assert smeared.value() == b"late"
    assert smeared.smearer.accepting.waiting == 0
    assert smeared.copy.time < (smeared.host.now_ms() - 60_000) << COUNT_BITS  # No record was written anew.


def test_a_later_delete_stays(smeared):
    smeared.put(b"v")
    smeared.host.call("delete", "t", KEY, {"level": "one"})
    smeared.pass_s(WAIT_S)
    assert smeared.value() is None


def test_what_comes_half_an_hour_late_is_a_new_write(smeared):
    """The key may have been deleted since, and the tombstone collected."""
    smeared.put(b"v")
    smeared.host.is_lost = True
    smeared.pass_s(LATEST_MS / 1000 + 60)
    smeared.host.call("put", "t", KEY, b"w", {"level": "one"})
    smeared.pass_s(20)
    smeared.host.is_lost = False
    smeared.pass_s(30)
    assert smeared.value() == b"v"


def test_the_host_merges_the_time(smeared):
    """A host with a slow clock writes later records that win over the forwarded put."""
    late_ms = smeared.host.now_ms
    smeared.host.now_ms = lambda: late_ms() - 50_000 - MAX_WAIT_MS
    smeared.host.replicas.skew.most_ms = 1e9
    smeared.put(b"v")
    accepted_ms = smeared.smearer.now_ms()
    smeared.pass_s(WAIT_S)
    assert smeared.value() == b"v"
    smeared.host.call("put", "t", KEY, b"w", {"level": "one"})
    assert smeared.value() == b"w"
    assert smeared.host.now_ms() < accepted_ms
    assert smeared.copy.time > accepted_ms << COUNT_BITS


def test_a_clock_that_was_far_ahead_gives_no_times(smeared):
    """After the clock was set back, puts are forwarded at once until it has caught up."""
    smeared.smearer.skew_s = 3_600
    assert smeared.put(b"v") == ACCEPTED
    smeared.smearer.skew_s = 0
    assert smeared.put(b"w") == TOKEN
    smeared.pass_s(WAIT_S)
    assert smeared.value() == b"v"  # The time is an hour ahead of the host, so the put is a new write.
    assert smeared.copy.time <= (smeared.host.now_ms() + 1) << COUNT_BITS
    smeared.host.call("put", "t", KEY, b"x", {"level": "one"})
    assert smeared.value() == b"x"


@pytest.mark.parametrize("error", [StorageError("no space left"), Overloaded("no room")])
def test_a_store_that_takes_nothing(smeared, error):
    """The put is forwarded at once if the store refuses it or fails."""
    smeared.smearer.refuses = error
    assert smeared.put(b"v") == TOKEN
    assert smeared.value() == b"v"
    smeared.smearer.refuses, smeared.smearer.fails = None, StorageError("a sync failed")
    assert smeared.put(b"w") == TOKEN
    assert smeared.value() == b"w"
    assert smeared.smearer.accepting.waiting == 0


def test_what_hosts_refuse_is_forwarded_again(smeared):
    """A refused put is forwarded until a host takes it; if the store cannot delay its row, the old row stays."""
    smeared.put(b"v")
    smeared.host.is_lost = True
    smeared.pass_s(WAIT_S)
    assert "no host takes the write" in smeared.smearer.accepting.backlog_of(smeared.id)["why"]
    smeared.smearer.refuses = StorageError("no space left")
    smeared.pass_s(60)
    smeared.smearer.refuses = None
    smeared.host.is_lost = False
    smeared.pass_s(20)
    assert (smeared.value(), smeared.smearer.accepting.waiting) == (b"v", 0)
    assert len(smeared.smearer.spaces[smeared.smearer.smeared]) == 1


def test_no_more_waits_than_may(smeared):
    """Beyond the limit of puts or bytes, puts are forwarded at once."""
    for limits in ({"most_puts": 2}, {"most_bytes": 200}):
        smeared.smearer.accepts(**limits)
        answers = [smeared.put(b"v" * 10) for _ in range(4)]
        assert answers.count(ACCEPTED) == 2
        assert answers[2:] == [TOKEN] * 2
        smeared.pass_s(WAIT_S)


def test_who_drains_forwards_all_at_once(smeared):
    """A draining node accepts no more puts."""
    for number in range(5):
        smeared.put(b"v", SHORT + b"%d" % number)
    smeared.smearer.accepting.drain()
    smeared.pass_s(2)
    assert smeared.smearer.accepting.waiting == 0
    assert [smeared.value(SHORT + b"%d" % number) for number in range(5)] == [b"v"] * 5
    assert smeared.put(b"w") == TOKEN


def test_what_waits_for_a_dropped_table_is_dropped(smeared):
    """Puts of a dropped table wait until the drop is known; then they are dropped and counted."""
    smeared.put(b"v")
    smeared.drop("t")
    smeared.pass_s(WAIT_S)
    assert smeared.smearer.accepting.waiting == 1
    smeared.ended.add(smeared.id)
    smeared.pass_s(20)
    told = smeared.smearer.accepting.to_map()
    assert (told["smeared_waiting"], told["smeared_dropped"], told["smeared_forwarded"]) == (0, 1, 0)


@pytest.mark.parametrize("rows", [
    [], [KEY], [KEY, b"v"], [KEY, b"v", 0], [KEY, b"v", True], [KEY, None, 5], [KEY, b"v", -1], [KEY, b"v", 5, KEY],
])  # fmt: skip
def test_what_is_no_accepted_put(smeared, rows):
    (table, partition), *_ = smeared.host.replicas.by_partition
    error = smeared.host.outcome("table_accepted", table, partition, msgpack.packb(rows), 1 << 62, b"", 0)
    assert type(error) is BadRequest
    assert "table_accepted:" in error.message
    assert smeared.value() is None


def test_of_one_key_the_last_accepted_stays(smeared):
    """The order of arrival does not matter, within a message or across messages."""
    chance = random.Random(1)
    copy = smeared.copy
    times = [(smeared.host.now_ms() - number) << COUNT_BITS for number in range(20)]
    for _ in range(20):
        rows = [(KEY, b"%d" % time, time) for time in chance.sample(times, 3)]
        best = max(time for _, _, time in rows)
        times = [time + (1 << COUNT_BITS) * 30 for time in times]
        flat = [part for row in rows for part in row]
        assert smeared.host.call("table_accepted", *copy.partition, msgpack.packb(flat), 1 << 62, b"", 0) is not None
        assert smeared.value() == b"%d" % best
