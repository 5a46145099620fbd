"""Anti-entropy makes two nodes with different knowledge equal."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from gossipkv.gossip.anti_entropy.differences import DATAGRAMS
from gossipkv.gossip.anti_entropy.exchange import LONGEST_PAUSE_MS, MAX_ASKED, PAUSE_MS
from gossipkv.gossip.member import MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES, pack, unpack
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import MAX_PART_BYTES, MORE, REPLY, BranchHead, Delta, KnownMember, Want
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.tree.branch import Branch
from gossipkv.gossip.tree.limits import MAX_BRANCH_BYTES, TreeLimits
from tests.unit.gossip.tree.linked import START_MS, Link, Node, address_of, equal, member, pair
from tests.unit.gossip.tree.transfers import whole

STILL_MS = 5000


def compare(one: Node, two: Node) -> None:
    """Tell `one` of another hash until it has been still for long enough to begin an exchange."""
    for _ in range(2):  # The first call starts the time of stillness.
        one.exchange.differs(two.me.address, now_ms=one.link.now_ms)
        one.link.pass_time(STILL_MS)
    one.link.run()


def fill(node: Node, keys: int, value: bytes = b"x" * 20) -> None:
    for number in range(keys):
        node.tree.publish(f"partitions/geo/2026/{number:05}@{node.me.address}", value)


def many(link: Link, node: Node, count: int) -> None:
    for number in range(count):
        node.hear_record(member(f"n{number}"), now_ms=link.now_ms)


def test_both_become_equal_in_three_datagrams() -> None:
    """The datagrams are a digest, the missing parts with a request, and the requested parts."""
    link, one, two = pair()
    one.hear_record(member("ann"), now_ms=link.now_ms)
    two.hear_record(member("ben"), now_ms=link.now_ms)
    fill(one, 3)
    fill(two, 4)
    link.sent.clear()
    compare(one, two)
    assert equal([one, two])
    assert one.view() == two.view()
    assert len(one.view()) == 7
    assert len(link.sent) <= 4
    assert not link.asked


def test_news_over_a_connection_that_is_there() -> None:
    """News carry the changes since the last news; a receiver that misses earlier changes ignores them."""
    link, one, two = pair()
    three = link.node("three")
    for node in (one, two):
        three.knows(node)
        node.knows(three)
    fill(one, 3)
    first = one.exchange.news()
    assert first is not None
    assert one.exchange.news() is None
    assert messages.read_sync(reply := two.exchange.reply(first, now_ms=link.now_ms))[1] == REPLY
    assert unpack(reply) == b""
    one.tree.withdraw(one.tree.published().popitem()[0])
    one.tree.publish("k", b"v")
    second = one.exchange.news()
    assert second is not None
    for node in (two, three):
        node.exchange.reply(second, now_ms=link.now_ms)
    assert two.view() == one.view()
    assert three.view() == []
    three.exchange.reply(first, now_ms=link.now_ms)
    three.exchange.reply(second, now_ms=link.now_ms)
    assert three.view() == one.view()


def test_nothing_is_said_while_news_are_on_their_way() -> None:
    """Rumours need time to spread; until then a difference means nothing."""
    link, one, two = pair()
    fill(one, 1)
    one.exchange.differs(two.me.address, now_ms=link.now_ms)
    link.pass_time(400)
    one.exchange.differs(two.me.address, now_ms=link.now_ms)
    assert not link.sent
    fill(one, 2)
    link.pass_time(400)
    one.exchange.differs(two.me.address, now_ms=link.now_ms)
    assert not link.sent
    link.pass_time(600)
    one.exchange.differs(two.me.address, now_ms=link.now_ms)
    assert len(link.sent) == 1


def test_where_something_always_changes_it_does_not_wait_for_ever() -> None:
    """An exchange begins after five seconds without one."""
    link, one, two = pair()
    one.exchange._last_ms = link.now_ms
    for number in range(60):
        one.tree.publish("k", bytes([number]))
        link.pass_time(100)
        one.exchange.differs(two.me.address, now_ms=link.now_ms)
    assert len(link.sent) == 1


@pytest.mark.parametrize(("answered", "longest_ms"), [(True, LONGEST_PAUSE_MS), (False, PAUSE_MS)])
def test_a_node_begins_one_exchange_a_second_and_fewer_when_they_change_nothing(
    answered: bool, longest_ms: int
) -> None:
    """Pauses grow while a running suspicion looks different; a lost exchange is retried soon."""
    link, one, two = pair()
    fill(one, 1)
    times = []
    for _ in range(600):
        link.pass_time(100)
        before = len(link.sent) + len(link.waiting)
        one.exchange.differs(two.me.address, now_ms=link.now_ms)
        if len(link.sent) + len(link.waiting) > before:
            times.append(link.now_ms)
        link.waiting.clear()  # All packets are lost.
        one.exchange._asked.clear()
        one.exchange._was_answered = answered
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] >= PAUSE_MS
    assert gaps == sorted(gaps)
    assert gaps[-1] == longest_ms


def test_a_branch_larger_than_a_few_datagrams_comes_over_tcp() -> None:
    """A HEAD names 500 keys; the branch is requested alone and comes compressed."""
    link, one, two = pair()
    fill(one, 500)
    compare(two, one)
    assert equal([one, two])
    assert len(two.view()) == 500
    assert len(link.asked) == 1
    assert link.asked[0][0] < 100
    assert link.asked[0][1] < 12_000
    assert sum(link.sent) < 500


LARGE = TreeLimits(max_entry_bytes=33_000, max_branch_bytes=MAX_BRANCH_BYTES)


def test_large_branches_both_ways() -> None:
    """A node sends the branches that the other lacks and still requests all that it lacks itself."""
    link, one, two = pair(limits=LARGE)
    for node in (one, two):
        others = [link.node(f"{node.me.name}{number}", limits=LARGE) for number in range(12)]
        for other in (node, *others):
            node.knows(other)
            fill(other, 8, Random(other.me.name).randbytes(32_000))
            for delta in whole(other.tree.deltas(other.id, 0, 0, part_bytes=MAX_PART_BYTES)):
                node.tree.apply(delta)
    one.exchange._request(two.me.address, one.exchange.request(now_ms=link.now_ms))
    link.run()
    assert equal([one, two])
    assert len(one.view()) == len(two.view()) == 26 * 8
    assert max(map(max, link.asked)) < MAX_UNPACKED_BYTES
    assert len(link.asked) <= 2 * 26 // 4 + 4


def test_the_largest_branch_comes_in_one_reply() -> None:
    """The largest branch fits a reply for few long keys, many short keys and paths with any letters."""
    for keys in (
        [f"k/{number}" for number in range(7)],
        [f"{number:03}" for number in range(1000)],
        [f"{number:03}/{'ä' * 127}" for number in range(330)],
    ):
        value = bytes(31_000 if len(keys) == 7 else 0)
        link, one, two = pair(limits=LARGE)
        for key in keys:
            one.tree.publish(key, value)
        assert one.tree.size_bytes > MAX_BRANCH_BYTES * 4 // 5
        compare(two, one)
        assert equal([one, two])
        assert len(link.asked) == 1


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_branch_cut_between_its_pieces_changes_nothing(cut: int) -> None:
    """A branch that a broken peer sends in halves is ignored."""
    link, one, two = pair(limits=LARGE)
    fill(one, 7, Random(1).randbytes(31_000))
    pieces = list(one.tree.deltas(one.id, 0, 0, part_bytes=MAX_PART_BYTES))
    assert len(pieces) > cut
    for some in (pieces[:cut], pieces[cut:]):
        two.exchange.answered(one.me.address, pack(one.id, bytes(8), REPLY, b"".join(some)), now_ms=link.now_ms)
        assert two.tree.head(one.id).version == 0
    two.exchange.answered(one.me.address, pack(one.id, bytes(8), REPLY, b"".join(pieces)), now_ms=link.now_ms)
    assert equal([one, two])


def test_who_sends_the_same_again_is_not_asked_for_ever() -> None:
    """The reply announces more and brings nothing new."""
    link, one, two = pair()
    fill(one, 10)
    parts = b"".join(one.tree.deltas(one.id, 0, 0, part_bytes=200))
    cut = parts[: 3 + int.from_bytes(parts[1:3], "big")]
    for _ in range(5):
        link.waiting.clear()
        two.exchange.answered(one.me.address, pack(one.id, bytes(8), REPLY | MORE, cut), now_ms=link.now_ms)
        if not link.waiting:
            return
    raise AssertionError("it asks again and again")


def test_a_head_is_asked_about_once() -> None:
    """The first sender of a head is asked; other senders are not asked for a moment."""
    link, one, two = pair()
    three = link.node("three")
    fill(one, 40)
    head = one.tree.head(one.id)
    for source in (one, three, one):
        two.exchange.on_head(head, source.me.address, now_ms=link.now_ms)
    assert len(link.sent) == 1
    link.run()
    assert len(two.view()) == 40
    two.exchange.on_head(head, one.me.address, now_ms=link.now_ms + 10_000)
    assert not link.waiting


def test_a_gap_is_asked_about() -> None:
    """The predecessor of a change was lost."""
    link, one, two = pair()
    one.tree.publish("k/1")
    while one.tree.rumours.take(1000, 8):
        pass
    one.tree.publish("k/2")
    one.tell(two)
    link.run()
    assert one.view() == two.view()
    assert len(two.view()) == 2


def test_a_change_of_an_unknown_owner_brings_the_owner() -> None:
    link, one, two = pair()
    zoe = link.node("zoe")
    one.knows(zoe)
    zoe.tree.publish("k/1")
    zoe.tell(one)
    link.run()
    one.tell(two)
    link.run()
    assert two.members.get(zoe.id) is not None
    assert [name for _, name, _ in two.view()] == ["zoe"]


def test_a_join_is_one_request() -> None:
    """A newcomer gets all members with their ages, and its own keys become known."""
    link = Link()
    old = link.node("old")
    many(link, old, 200)
    old.hear_record(member("ded", state=MemberState.DEAD), now_ms=link.now_ms)
    fill(old, 300)
    link.pass_time(3_600_000)
    new = link.node("new", epoch=4)
    new.tree.publish("k/new")
    new.exchange._request(old.me.address, new.exchange.request(now_ms=link.now_ms))
    link.run()
    assert equal([old, new])
    assert len(new.view()) == len(old.view()) == 301
    assert len(link.asked) == 2
    assert new.members.peers[member_id("n7")].heard_ms == START_MS - 1000  # Rounded up.
    assert new.members.peers[member_id("ded")].since_ms == START_MS
    assert not new.tree.rumours.take(1000, 8)[1:]  # The newcomer does not repeat news that all nodes know.


def test_ages_come_with_what_they_are_of() -> None:
    """A member that was silent for an hour does not seem fresh, however many datagrams carry the digest."""
    link = Link()
    one, two = link.node("one"), link.node("two")
    many(link, one, 45)
    link.pass_time(3_600_000)
    one.knows(two)
    two.exchange._begin(one.me.address, link.now_ms)
    link.run()
    ages = {link.now_ms - two.members.peers[member_id(f"n{number}")].heard_ms for number in range(45)}
    assert ages == {3_601_000}


def test_large_clusters_compare_over_tcp() -> None:
    """A digest of a thousand members goes over TCP, and over datagrams only while TCP fails."""
    link = Link()
    one, two = link.node("one"), link.node("two")
    for node in (one, two):
        many(link, node, 998)
    fill(one, 5)
    compare(two, one)
    assert equal([one, two])
    assert not link.sent
    assert sum(map(sum, link.asked)) < 20_000
    link.tcp = False
    fill(one, 9)
    compare(two, one)
    assert not equal([one, two])
    compare(two, one)
    assert equal([one, two])
    assert 12 <= len(link.sent) <= 16


def test_tcp_follows_when_datagrams_did_not_help() -> None:
    """Datagrams may be too large for the path, or dropped."""
    link, one, two = pair()
    fill(one, 2)
    link.loss = 1.0
    compare(two, one)
    assert not equal([one, two])
    compare(two, one)
    assert equal([one, two])
    assert link.asked


@pytest.mark.parametrize("seed", range(5))
def test_equal_views_whatever_the_link_does(seed: int) -> None:
    """Under loss, doubling, shuffling and withdrawals, all nodes see the same in the end."""
    link = Link(seed)
    random = link.random
    nodes = [link.node(f"n{number}") for number in range(6)]
    nodes[0].knows(*nodes[1:])
    for node in nodes[1:]:
        node.knows(nodes[0])
    link.loss, link.doubled, link.shuffled = random.random() * 0.5, random.random() * 0.3, True
    for _ in range(60):
        node = random.choice(nodes)
        for _ in range(random.choice([1, 1, 3, 40])):
            path = f"k/{random.randrange(60)}"
            if random.random() < 0.6:
                node.tree.publish(path, bytes(random.randrange(200)))
            else:
                node.tree.withdraw(path)
        for other in nodes:
            other.tell(random.choice([one for one in nodes if one is not other]))
            other.ping(random.choice([one for one in nodes if one is not other]))
        link.pass_time(random.choice([200, 2000]))
        link.run()
    link.loss = 0.0
    link.settle(rounds=60)
    assert len({tuple(node.view()) for node in nodes}) == 1
    truth = sorted((path, node.me.name, value) for node in nodes for path, value in node.tree.published().items())
    assert nodes[0].view() == truth


def test_a_digest_for_who_has_everything_is_answered_with_nothing() -> None:
    link, one, two = pair()
    compare(one, two)
    assert len(link.sent) == 1


def test_only_the_hash_is_said_unasked() -> None:
    """A member sends its hash now and then; a different hash makes the receiver begin an exchange."""
    link, one, two = pair()
    one.exchange.start(now_ms=link.now_ms)
    for _ in range(200):
        link.pass_time(LAN.exchange_interval_ms // 10)
        one.timers.run(link.now_ms)
        link.run()
    assert 15 <= len(link.sent) <= 27
    assert set(link.sent) == {messages.SYNC_BYTES}
    fill(one, 1)
    link.pass_time(2 * LAN.exchange_interval_ms)
    one.timers.run(link.now_ms)
    link.run()
    assert equal([one, two])


def test_a_node_that_lost_its_disk_hears_of_its_past() -> None:
    """The record, not the digest, shows the same epoch under another uuid."""
    link, one, two = pair()
    fill(two, 3)
    compare(one, two)
    lost = link.node("two")
    lost.me = lost.members.own = two.me._replace(uuid=b"new".ljust(16, b"."))
    lost.tree.on_member(lost.me)
    lost.knows(one)
    fill(lost, 3)
    assert lost.exchange.state_hash != one.exchange.state_hash
    lost.exchange._request(one.me.address, lost.exchange.request(now_ms=link.now_ms))
    link.run()
    assert two.me in lost.heard


def test_few_requests_at_once() -> None:
    """Requests are limited in total and to one per peer; an answer makes room."""
    link, one, two = pair()
    for number in range(20):
        one.exchange._request(address_of(f"n{number % 10}"), b"")
    assert len(link.waiting) == MAX_ASKED
    one.exchange.answered(address_of("n0"), None, now_ms=link.now_ms)
    one.exchange._request(two.me.address, b"")
    assert len(link.waiting) == MAX_ASKED + 1


def test_a_small_packet_brings_few_large_ones() -> None:
    """An empty digest from a forged address brings a few datagrams and a flag, no flood."""
    link, one, _ = pair()
    many(link, one, 500)
    fill(one, 300)
    empty = messages.sync(b"stranger", bytes(8), 0) + messages.digest(bytes(8), b"\xff" * 8, ())
    link.sent.clear()
    one.exchange.receive(empty, address_of("x"), now_ms=link.now_ms)
    assert len(link.sent) <= DATAGRAMS + 1


def test_a_datagram_has_few_branches_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small branches are sent, two large branches are examined, and all heads are named."""
    link, one, two = pair()
    large = [link.node(f"large{number}") for number in range(6)]
    small = [link.node(f"small{number}") for number in range(3)]
    for node, keys, times in [(node, 500, 6) for node in large] + [(node, 3, 1) for node in small]:
        for time in range(times):
            fill(node, keys, bytes([time]))
        one.knows(node)
        one.exchange.answered(
            node.me.address,
            node.exchange.reply(one.exchange.request(now_ms=START_MS), now_ms=START_MS),
            now_ms=START_MS,
        )
    looked_at: list[int] = []
    changes = Branch.changes
    monkeypatch.setattr(Branch, "changes", lambda branch, since: looked_at.append(since) or changes(branch, since))
    wanted = [messages.known_member(KnownMember(node.id, MemberState.ALIVE, 0, 1, 1, 0)) for node in large + small]
    link.waiting.clear()
    want = messages.sync(two.id, bytes(8), REPLY) + messages.want(wanted * 8)
    one.exchange.receive(want, two.me.address, now_ms=START_MS)
    assert len(looked_at) == len(small) + 2
    sent = [part for _, _, message in link.waiting for part in messages.read_parts(message, messages.SYNC_BYTES)]
    assert {part.owner for part in sent if isinstance(part, Delta)} == {node.id for node in small}
    assert {part.owner for part in sent if isinstance(part, BranchHead)} == {node.id for node in large}
    assert len(sent) == len(large) + len(small)


def test_known_of_one_branch_are_asked_about_once() -> None:
    """A datagram with the flag MORE that names a branch many times causes one request."""
    link, one, two = pair()
    heads = [messages.head(BranchHead(two.id, 1, version)) for version in range(9, 109)]
    link.waiting.clear()
    message = messages.sync(two.id, bytes(8), REPLY | MORE) + b"".join(heads)
    one.exchange.receive(message, two.me.address, now_ms=START_MS)
    [(_, _, request)] = link.waiting
    [want] = messages.read_parts(unpack(request[1:]), 0)
    assert isinstance(want, Want)
    assert [known.id for known in want.entries] == [two.id]


@pytest.mark.parametrize("flags", [0, REPLY, MORE, REPLY | MORE])
def test_garbage_is_malformed(flags: int) -> None:
    """Every cut message is read or refused as malformed."""
    link, one, two = pair()
    parts = messages.record(member("zoe")) + messages.want(
        [messages.known_member(messages.KnownMember(two.id, MemberState.ALIVE, 0, 1, 0, 0))]
    )
    for message, hear in (
        (messages.sync(two.id, bytes(8), flags) + parts, one.exchange.receive),
        (pack(two.id, bytes(8), flags, parts * 30), lambda cut, _, now_ms: one.exchange.reply(cut, now_ms=now_ms)),
    ):
        for cut in range(1, len(message)):
            try:
                hear(message[:cut], two.me.address, now_ms=link.now_ms)
            except Malformed:
                continue
    with pytest.raises(Malformed):
        one.exchange.receive(pack(two.id, bytes(8), flags, parts * 30), two.me.address, now_ms=link.now_ms)
