"""Change feeds of tables, from the client's request to its answer."""

from __future__ import annotations

import zlib

import msgpack
import pytest

from gossipkv.errors import BadRequest, NotReady, Overloaded, TooOld, Unavailable, UnknownDatabase
from gossipkv.register.metadata.partitions import HASH, RANGE
from gossipkv.replication.changes.pages import ChangeFeeds
from gossipkv.replication.replica.token_keys import SEAL_BYTES
from gossipkv.table.records import feed_token
from gossipkv.table.records.changes import WOKEN
from gossipkv.wire.arguments import Arguments
from tests.oracle.token import sealed
from tests.unit.table.record_nodes import CLUSTER, Records


def made(kind=RANGE, firsts=(b"", b"g", b"p"), nodes=3, holders=None):
    """Make nodes that each hold one partition, on one replica, so that each write reaches a majority at once."""
    records = Records(nodes)
    records.make(
        "t", kind, firsts=5 if kind == HASH else firsts, holders=holders or (lambda at: [records.nodes[at % nodes]])
    )
    return records


def resealed(token, change):
    """Return a token of the same feed whose compressed body is changed."""
    return sealed(token[:1] + change(token[1:-SEAL_BYTES]), CLUSTER)


class Feed:
    """A client that polls a node, or another one for each page."""

    def __init__(self, *nodes, **options):
        self.nodes, self.options, self.token, self.polls = nodes, options, None, 0

    def poll(self, wait_ms=0, **more):
        node = self.nodes[self.polls % len(self.nodes)]
        self.polls += 1
        token = {} if self.token is None else {"token": self.token}
        options = (
            self.options
            if self.token is None
            else {key: value for key, value in self.options.items() if key != "start"}
        )
        changes, self.token = node.call("changes", "t", {**options, **token, "wait_ms": wait_ms, **more})
        return [tuple(change) for change in changes]

    def all(self, polls=20):
        found = []
        for _ in range(polls):
            page = self.poll()
            found += page
        return found


@pytest.mark.parametrize("kind", [HASH, RANGE])
def test_a_feed_gives_each_change_after_its_first_token_once(kind):
    records = made(kind)
    one, two, _ = records.nodes
    one.call("put", "t", b"a", b"old")
    feed = Feed(one)
    assert feed.poll() == []
    for at, key in enumerate((b"a", b"h", b"q", b"a")):
        records.nodes[at % 3].call("put", "t", key, b"%d" % at)
    two.call("delete", "t", b"h")
    found = feed.all()
    assert [change for change in found if change[0] == b"q"] == [(b"q", b"2", None)]
    assert [change for change in found if change[0] == b"a"] == [(b"a", b"0", None), (b"a", b"3", None)]
    assert [change for change in found if change[0] == b"h"] == [(b"h", b"1", None), (b"h", None, None)]
    assert feed.all() == []


def test_any_node_goes_on_with_a_token():
    records = made()
    feed, found = Feed(*records.nodes), []
    feed.poll()
    for number in range(12):
        records.nodes[0].call("put", "t", b"%c" % (97 + number), b"")
        found += feed.poll(limit=1)
    assert sorted(found + feed.all()) == [(b"%c" % (97 + number), b"", None) for number in range(12)]


def test_a_snapshot_gives_present_records_and_then_their_changes():
    records = made()
    one = records.nodes[0]
    for key in (b"a", b"h", b"i", b"q"):
        one.call("put", "t", key, b"old")
    one.call("delete", "t", b"i")
    feed = Feed(one, start="snapshot")
    assert sorted(feed.all()) == [(key, b"old", None) for key in (b"a", b"h", b"q")]
    one.call("put", "t", b"h", b"new")
    assert feed.all() == [(b"h", b"new", None)]
    assert Feed(one, start="snapshot", prefix="q").all() == [(b"q", b"old", None)]


def test_a_poll_waits_for_a_change_and_is_woken_by_it():
    records = made()
    one, two, _ = records.nodes
    feed = Feed(one)
    feed.poll()
    answers = one.begin("changes", "t", {"token": feed.token, "wait_ms": 5000})
    records.pass_s(1.0)
    assert answers == []
    two.call("put", "t", b"h", b"1")
    records.until(lambda: answers, most_s=1.0)
    assert b"h" in answers[0].data
    assert not one.methods.reads[b"changes"].__self__.polls


def test_an_idle_feed_asks_each_host_once_a_second_and_keeps_its_token(monkeypatch):
    records = made()
    feed = Feed(records.nodes[0])
    for _ in range(3):
        feed.poll(wait_ms=1000)
    token, asked = feed.token, [[*node.asked] for node in records.nodes]
    monkeypatch.delattr(feed_token, "decode")
    monkeypatch.delattr(feed_token, "encode")
    for _ in range(3):
        assert feed.poll(wait_ms=1000) == []
    assert feed.token == token
    assert [len(node.asked) - len(before) for before, node in zip(asked, records.nodes, strict=True)] == [0, 3, 3]
    records.pass_s(5.0)
    assert sum(node.waiting.waiting for node in records.nodes) == 0


def test_a_dead_host_that_answered_last_is_asked_last():
    one, two, three = made().nodes
    Feed(one).poll()
    (feed,) = one.methods.reads[b"changes"].__self__.feeds.values()
    feed._hosts[0], feed._places[0].node = (one.uuid, two.uuid, three.uuid), two.uuid
    assert feed._next_host(0) == two.uuid
    one.replicas.is_up = lambda node: node != two.uuid
    assert feed._next_host(0) == one.uuid
    feed._errors[0] = {one.uuid: TooOld(""), three.uuid: TooOld("")}
    assert feed._next_host(0) == two.uuid


def test_many_feeds_are_woken_a_few_at_a_time():
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feeds = one.methods.reads[b"changes"].__self__
    feeds._max_feeds = 100
    feed = Feed(one)
    feed.poll()
    answers = [one.begin("changes", "t", {"token": feed.token, "limit": at, "wait_ms": 60_000}) for at in range(1, 51)]
    one.call("put", "t", b"a", b"1")
    records.until(lambda: any(answers))
    assert sum(map(bool, answers)) <= WOKEN
    records.pass_s(1.0)
    assert {b"a" in page.data for (page,) in answers} == {True}


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_word_that_has_not_come_is_noticed_and_a_lost_node_is_asked_again(is_lost):
    records = made()
    one, two, _ = records.nodes
    feed = Feed(one)
    for _ in range(3):
        feed.poll(wait_ms=100)
    answers = one.begin("changes", "t", {"token": feed.token, "wait_ms": 60_000})
    one.hangs = True  # The word does not arrive.
    two.call("put", "t", b"h", b"1")
    records.pass_s(0.5)
    one.hangs = False
    if is_lost:
        one.feeds.lost(two.uuid)
    records.until(lambda: answers, most_s=0.1 if is_lost else 2.5)
    assert b"h" in answers[0].data


def test_a_poll_ends_when_no_majority_of_the_hosts_is_up(monkeypatch):
    """They may be silent for a moment; once most of them are dead, or this node is cut off, they give nothing soon."""
    records = made()
    one, *others = records.nodes
    feed = Feed(one)
    feed.poll()
    answers = one.begin("changes", "t", {"token": feed.token, "wait_ms": 60_000})
    monkeypatch.setattr(one.feeds, "has_majority", lambda _: False)
    for node in others:
        node.hangs = True
        one.feeds.lost(node.uuid)
    records.pass_s(10.0)
    assert answers == []
    one.replicas.is_up = lambda node: node == one.uuid
    records.until(lambda: answers, most_s=2.5)
    assert isinstance(answers[0], Unavailable)


def test_limits_and_malformed_options_are_refused():
    records = made()
    one = records.nodes[0]
    feed = Feed(one, prefix="a")
    feed.poll()
    for options in ({"token": feed.token[:-1]}, {"start": "now"}, {"token": feed.token, "prefix": "b"}):
        with pytest.raises(BadRequest):
            one.call("changes", "t", options)
    with pytest.raises(UnknownDatabase):
        one.call("changes", "u", {})
    waiting = [one.begin("changes", "t", {"token": feed.token, "wait_ms": 2000}) for _ in range(3)]
    assert isinstance(one.outcome("changes", "t", {}), Overloaded)
    records.until(lambda: all(waiting), most_s=4.0)


def test_a_token_from_before_the_log_is_too_old():
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feed = Feed(one)
    feed.poll()
    one.call("put", "t", b"a", b"1")
    one.replicas.tail.forget()
    one.floor = one.synced()
    with pytest.raises(TooOld, match="snapshot"):
        feed.poll()
    feed = Feed(one, start="snapshot")
    assert feed.poll() == [(b"a", b"1", None)]
    one.call("put", "t", b"a", b"2")
    assert feed.poll() == [(b"a", b"2", None)]


def test_of_ten_thousand_polls_as_many_wait_as_a_node_allows():
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feeds = one.methods.reads[b"changes"].__self__
    feeds._max_feeds = 2000
    feed = Feed(one)
    feed.poll()
    answers = [
        one.begin("changes", "t", {"token": feed.token, "limit": at, "wait_ms": 1000}) for at in range(1, 10_001)
    ]
    refused = [answer for (answer,) in filter(None, answers)]
    assert len(refused) == 8000
    assert {(type(error), error.message) for error in refused} == {
        (Overloaded, "as many change feeds wait on this node as `max_feeds` allows")
    }
    records.pass_s(2.0)
    assert all(answers)
    assert not feeds.polls
    assert len(feeds.followers[next(iter(feeds.followers))]) == len(feeds.feeds) == 2000


def test_polls_with_one_token_get_one_page():
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feed = Feed(one)
    feed.poll()
    answers = [one.begin("changes", "t", {"token": feed.token, "wait_ms": 1000}) for _ in range(3)]
    one.call("put", "t", b"a", b"1")
    records.until(lambda: all(answers), most_s=0.5)
    assert len({id(page) for (page,) in answers}) == 1
    feed.token = None
    feed.poll()
    assert feed.all() == []


def test_a_wait_may_be_ended():
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feed, answers = Feed(one), []
    feed.poll()
    end = one.methods.reads[b"changes"](
        Arguments(b"changes", msgpack.packb(["t", {"token": feed.token, "wait_ms": 9000}]))
    )
    end.begin(answers.append)()
    assert [type(answer) for answer in answers] == [Unavailable]
    records.pass_s(5.0)
    assert one.waiting.waiting == 0


def late(node, feed, **options):
    """Return a poll of a feed that is read and has not begun."""
    return node.methods.reads[b"changes"](Arguments(b"changes", msgpack.packb(["t", {"token": feed.token, **options}])))


def keys(page):
    return [key for key, _, _ in msgpack.unpackb(page.data)[0]]


@pytest.mark.parametrize("ends", [False, True])
def test_each_of_two_polls_with_one_token_in_one_packet_gets_the_changes(ends):
    """The second one begins when the first was answered, and then when that one's feed has gone on."""
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feed, answers = Feed(one), []
    feed.poll()
    polls = [late(one, feed, wait_ms=1000) for _ in range(2)]
    one.call("put", "t", b"a", b"1")
    polls[0].begin(answers.append)
    if ends:
        records.until(lambda: answers)
    polls[1].begin(answers.append)
    records.until(lambda: len(answers) == 2)
    assert [*map(keys, answers)] == [[b"a"], [b"a"]]


def test_a_client_that_leaves_takes_nothing_from_another_with_its_token():
    """One host has answered with a change, and the other one is slow, when a client leaves."""
    records = made(nodes=2, firsts=(b"", b"g"))
    one, two = records.nodes
    feed, answers = Feed(one), ([], [])
    feed.poll()
    one.call("put", "t", b"a", b"1")
    two.held = []
    ends = [late(one, feed, wait_ms=0).begin(answer.append) for answer in answers]
    ends[0]()
    assert [type(answer) for answer in answers[0]] == [Unavailable]
    for come in two.held:
        come()
    two.held = None
    records.until(lambda: answers[1])
    assert keys(answers[1][0]) == [b"a"]
    feed.nodes = (one,)
    assert feed.poll() == [(b"a", b"1", None)]


@pytest.mark.parametrize("start", [{}, {"start": "snapshot"}])
def test_a_feed_that_is_given_up_before_its_first_answer_is_no_other_one(start):
    records = made(nodes=2, firsts=(b"", b"g"))
    one, two = records.nodes
    one.call("put", "t", b"h", b"1")
    two.held, answers = [], []
    begin = one.methods.reads[b"changes"](Arguments(b"changes", msgpack.packb(["t", {**start, "wait_ms": 9000}])))
    begin.begin(answers.append)()
    two.held = None
    assert [type(answer) for answer in answers] == [Unavailable]
    assert Feed(one, start="snapshot").all() == [(b"h", b"1", None)]
    assert Feed(one).all() == []


def test_polls_at_one_node_take_no_wake_up_from_another():
    """Between a change and the word of it, another feed of the node reads that change and waits for the next."""
    records = made()
    one, two, _ = records.nodes
    feeds = Feed(one), Feed(one, limit=7)
    for feed in feeds:
        feed.poll()
        feed.poll(wait_ms=10)
    answers = one.begin("changes", "t", {"token": feeds[0].token, "wait_ms": 60_000})
    records.pass_s(0.2)
    two.call("put", "t", b"h", b"1")
    assert feeds[1].poll() == [(b"h", b"1", None)]
    records.until(lambda: answers, most_s=0.5)
    assert keys(answers[0]) == [b"h"]


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_a_snapshot_begins_with_a_token_from_which_all_comes(limit):
    records = made()
    one = records.nodes[0]
    put = {b"a", b"b", b"h", b"q"}
    for key in put:
        one.call("put", "t", key, b"1")
    feed = Feed(one, start="snapshot")
    assert feed.poll(limit=0) == []
    one.call("delete", "t", b"b")
    first = Feed(one)
    first.token = feed.token
    for _ in range(2):  # A client stopped amid the first page, and goes on from the beginning.
        first.token, found = feed.token, [change for _ in range(20) for change in first.poll(limit=limit)]
        assert {key for key, value, _ in found if value is not None} >= put - {b"b"}
        assert (b"b", None, None) in found


def test_an_empty_token_is_refused():
    (one,) = made(nodes=1).nodes
    assert isinstance(one.outcome("changes", "t", {"token": b""}), BadRequest)


def test_a_new_feed_waits_for_its_beginning_and_gets_no_empty_token():
    records = made()
    one, two, _ = records.nodes
    two.is_lost = True
    assert isinstance(one.outcome("changes", "t", {}), Unavailable)
    answers = one.begin("changes", "t", {})
    records.pass_s(0.3)
    two.is_lost = False
    records.until(lambda: answers, most_s=1.0)
    assert msgpack.unpackb(answers[0].data)[1]


def test_the_token_of_a_table_that_was_made_again_is_too_old():
    records = made()
    one = records.nodes[0]
    feed = Feed(one)
    feed.poll()
    answers = one.begin("changes", "t", {"token": feed.token, "wait_ms": 9000})
    records.drop("t")
    assert isinstance(one.outcome("changes", "t", {"token": feed.token}), UnknownDatabase)
    records.make("t", RANGE, firsts=(b"", b"g", b"p"), holders=lambda at: [records.nodes[at % 3]])
    with pytest.raises(TooOld, match="earlier table"):
        feed.poll()
    for node in records.nodes:
        one.feeds.lost(node.uuid)
    assert [type(answer) for answer in answers] == [TooOld]


def test_a_node_with_an_older_map_reads_the_newer_one_and_takes_no_token_for_too_old():
    records = made(nodes=1, firsts=(b"",))
    (one,) = records.nodes
    feed = Feed(one)
    before = records.divide("t", b"m")
    records.adopt("t")
    one.call("put", "t", b"z", b"1")
    feed.poll()
    table = records._tables["t"].id
    now = records.bases[table]
    records.forget("t", before)
    assert isinstance(one.outcome("changes", "t", {"token": feed.token}), NotReady)
    assert one.looked == [table]
    records.forget("t", now)
    one.call("put", "t", b"y", b"2")
    assert feed.all() == [(b"y", b"2", None)]


def test_a_host_whose_store_was_opened_again_is_asked_again():
    """It no longer knows whom to tell, and its connections have not ended."""
    records = made()
    one, two, _ = records.nodes
    feed = Feed(one)
    feed.poll()
    answers = one.begin("changes", "t", {"token": feed.token, "wait_ms": 60_000})
    records.pass_s(0.1)
    two.feeds = ChangeFeeds(two.replicas, two)
    two.call("put", "t", b"h", b"1")
    records.until(lambda: answers, most_s=2.0)
    assert keys(answers[0]) == [b"h"]


def test_a_snapshot_whose_beginning_waits_for_a_host_asks_the_others_once():
    records = made()
    one, two, _ = records.nodes
    for key in (b"a", b"h"):
        one.call("put", "t", key, b"1")
    two.is_lost = True
    assert isinstance(one.outcome("changes", "t", {"start": "snapshot", "limit": 0}), Unavailable)
    two.is_lost = False
    feed = Feed(one, start="snapshot")
    assert feed.poll(limit=0) == []
    assert sorted(feed.all()) == [(b"a", b"1", None), (b"h", b"1", None)]


def test_a_place_that_is_too_old_is_told_though_others_have_changes():
    records = made()
    one, two, _ = records.nodes
    feed = Feed(one)
    feed.poll()
    one.call("put", "t", b"a", b"1")
    two.call("put", "t", b"h", b"1")
    two.replicas.tail.forget()
    two.floor = two.synced()
    with pytest.raises(TooOld):
        feed.poll()


def test_a_node_that_holds_none_of_the_table_asks_again_when_a_connection_ends():
    records = Records(3)
    one, two, three = records.nodes
    records.make("t", RANGE, firsts=(b"", b"g"), holders=lambda at: [(two, three)[at]])
    feed = Feed(one)
    feed.poll()
    answers = one.begin("changes", "t", {"token": feed.token, "wait_ms": 60_000})
    one.hangs = True  # The word does not arrive.
    two.call("put", "t", b"a", b"1")
    records.pass_s(0.1)
    one.hangs = False
    one.feeds.lost(two.uuid)
    records.until(lambda: answers, most_s=0.1)
    assert keys(answers[0]) == [b"a"]


def test_a_token_with_bytes_behind_its_stream_is_refused_and_keeps_nothing():
    records = made(nodes=1)
    (node,) = records.nodes
    _, token = node.call("changes", "t", {"start": "snapshot"})
    feeds = node.methods.reads[b"changes"].__self__.feeds
    kept = {*feeds}
    for behind in (b"\0", bytes(4096)):
        with pytest.raises(BadRequest):
            node.call(
                "changes", "t", {"token": resealed(token, lambda body, behind=behind: body + behind), "wait_ms": 0}
            )
    assert {*feeds} == kept
    assert all(len(digest) == 32 for _, digest, _ in feeds)


def test_a_token_of_more_partitions_than_a_feed_may_have_is_refused():
    records = made(nodes=1)
    (node,) = records.nodes
    _, token = node.call("changes", "t", {})
    for body in ([bytes(16), b"", [[]] * 5_000_000, 1], [bytes(16), b"", [[[]] * 100] * 5000, 1], [[[[[]]]]]):
        packed = zlib.compress(msgpack.packb(body), 9)
        with pytest.raises(BadRequest):
            node.call("changes", "t", {"token": resealed(token, lambda _, packed=packed: packed), "wait_ms": 0})
