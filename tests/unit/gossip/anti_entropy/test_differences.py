"""The comparison of digests decides which records and branches two nodes send each other."""

from __future__ import annotations

import itertools

import pytest

from gossipkv.gossip.anti_entropy.differences import FIRST, LAST, DatagramBodies
from gossipkv.gossip.member import Member, MemberState
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import MemberDigest
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.tree.linked import ROOM, START_MS, Link, Node, member, pair


def knowledge(node: Node, most_bytes: int = 1000) -> list[MemberDigest]:
    sent = node.exchange._knowledge.digest(most_bytes, node.link.now_ms)
    assert all(len(part) <= most_bytes for part in sent)
    found = [part for one in sent for part in messages.read_parts(one, 0)]
    assert all(isinstance(part, MemberDigest) for part in found)
    return [part for part in found if isinstance(part, MemberDigest)]


def test_a_digest_of_a_thousand_nodes_in_chunks() -> None:
    """Every chunk fits a packet, and the chunks cover each id once: a lost chunk costs only its own ids."""
    link = Link()
    node = link.node("me")
    for number in range(999):
        node.hear_record(member(f"n{number}"), now_ms=link.now_ms)
    digests = knowledge(node, ROOM)
    assert 11 <= len(digests) <= 15
    assert (digests[0].first, digests[-1].last) == (FIRST, LAST)
    for one, two in itertools.pairwise(digests):
        assert int.from_bytes(one.last, "big") + 1 == int.from_bytes(two.first, "big")
    for one in digests:
        assert all(one.first <= known.id <= one.last for known in one.entries)
    assert sorted(known.id for one in digests for known in one.entries) == sorted(one.id for one in node.members)


def test_what_a_lost_chunk_leaves_out_is_not_unknown() -> None:
    """Only ids inside the ranges that arrived are compared."""
    link = Link()
    one, two = link.node("one"), link.node("two")
    for node in (one, two):
        for number in range(100):
            node.hear_record(member(f"n{number}"), now_ms=link.now_ms)
    some = knowledge(one, 500)[1:3]
    found = two.exchange._knowledge.compare(some, link.now_ms)
    assert (found.records, found.branches, found.wanted) == ([], [], [])
    everything = two.exchange._knowledge.compare(knowledge(one, 500), link.now_ms)
    assert [record.name for record in everything.records] == ["two"]
    assert [known.id for known in everything.wanted] == [one.id]


@pytest.mark.parametrize(
    ("mine", "theirs", "told", "wanted"),
    [
        (member("zoe"), member("zoe"), False, False),
        (member("zoe", 2), member("zoe", 1, 9), True, False),
        (member("zoe", 1, 1), member("zoe", 1, 2), False, True),
        (member("zoe"), member("zoe", state=MemberState.SUSPECT), False, False),
        (member("zoe", state=MemberState.DEAD), member("zoe", state=MemberState.SUSPECT), True, False),
        (member("zoe", state=MemberState.DEAD), member("zoe", 1, 1), False, True),
        (member("zoe", state=MemberState.LEFT), member("zoe", 1, 5), True, False),
        (None, member("zoe", state=MemberState.DEAD), False, True),
        (member("zoe", state=MemberState.DEAD), None, True, False),
    ],
)
def test_who_tells_whom(mine: Member | None, theirs: Member | None, told: bool, wanted: bool) -> None:
    """The record of the larger rank is sent; a suspicion is not sent."""
    link, one, two = pair()
    for node, known in ((one, mine), (two, theirs)):
        if known is not None:
            node.hear_record(known, now_ms=link.now_ms)
    found = one.exchange._knowledge.compare(knowledge(two), link.now_ms)
    assert ([record.name for record in found.records] == ["zoe"]) is told
    assert ([known.id for known in found.wanted] == [member("zoe").id]) is wanted


def test_what_will_be_forgotten_soon_is_not_told() -> None:
    """Nodes forget at different times, so a dead member would otherwise circulate for ever."""
    link, one, two = pair()
    one.hear_record(member("zoe", state=MemberState.DEAD), now_ms=link.now_ms)
    link.pass_time(LAN.dead_retention_ms - 60_000)
    assert not two.exchange._knowledge.compare(knowledge(one), link.now_ms).wanted
    old = MemberDigest(FIRST, LAST, (one.exchange._knowledge.known_member(member("zoe").id, link.now_ms),))
    assert not two.exchange._knowledge.compare([old], link.now_ms).wanted
    assert not one.exchange._knowledge.compare(knowledge(two), link.now_ms).records


def test_no_id_is_compared_twice_in_a_message() -> None:
    """The first of overlapping digests counts: a few well-packed bytes must not cause many comparisons."""
    link, one, two = pair()
    one.hear_record(member("zoe"), now_ms=link.now_ms)
    one.tree.publish("a/b", b"")
    strange = two.exchange._knowledge.known_member(member("ann").id, link.now_ms)
    middle = b"\x7f" + LAST[1:]
    message = [
        MemberDigest(FIRST, middle, ()),
        MemberDigest(LAST, FIRST, (strange,)),
        MemberDigest(FIRST, LAST, ()),
        MemberDigest(middle, LAST, (strange,)),
        MemberDigest(b"\x80" + FIRST[1:], LAST, ()),
        MemberDigest(LAST, LAST, ()),
    ]
    found = one.exchange._knowledge.compare(message * 50, link.now_ms)
    assert sorted(record.id for record in found.records) == sorted(known.id for known in one.members)
    assert [owner for owner, *_ in found.branches] == [one.id]
    assert not found.wanted


def test_a_digest_says_nothing_of_ids_outside_its_range() -> None:
    """Many small digests must not ask about one id again and again."""
    link, one, two = pair()
    known = two.exchange._knowledge.known_member(two.id, link.now_ms)._replace(id=b"\x80" * 8, epoch=3)
    narrow = [MemberDigest(at, at, (known,)) for at in (bytes([first]) * 8 for first in range(0x70, 0x90))]
    assert [want.id for want in one.exchange._knowledge.compare(narrow, link.now_ms).wanted] == [known.id]


def test_one_want_of_an_id_counts() -> None:
    """The last request for an id counts: a datagram has room for two hundred requests for one branch."""
    _, one, two = pair()
    for path in ("a/b", "a/c", "a/d"):
        one.tree.publish(path, b"")
    wanted = [
        two.exchange._knowledge.known_member(one.id, START_MS)._replace(epoch=1, version=at) for at in (0, 1, 2) * 50
    ]
    found = one.exchange._knowledge.newer(wanted, START_MS)
    assert (found.records, found.branches, found.wanted) == ([], [(one.id, 1, 2)], [])


def test_one_record_of_an_id_is_contradicted() -> None:
    """Repeated false records cause one contradiction."""
    _, one, two = pair()
    other = two.me._replace(uuid=b"u" * 16)
    assert list(one.exchange._knowledge.contradicting([other, one.me, two.me, other] * 50)) == [two.me]


def test_ages_never_rejuvenate_the_living_nor_age_the_dead() -> None:
    """Ages do not drift while digests circulate a thousand times."""
    link, one, two = pair()
    for node in (one, two):
        node.hear_record(member("zoe"), now_ms=link.now_ms)
        node.hear_record(member("ded", state=MemberState.DEAD), now_ms=link.now_ms)
    link.pass_time(500)
    for _ in range(1000):
        link.pass_time(317)
        for digest in knowledge(one):
            for known in digest.entries:
                if known.id != two.id:
                    two.hear_age(known, now_ms=link.now_ms)
        one, two = two, one
    for node in (one, two):
        assert node.members.peers[member("zoe").id].heard_ms == START_MS
        assert node.members.peers[member("ded").id].since_ms == START_MS


def test_bodies_are_few_and_full() -> None:
    """A body that exceeds the limits is refused; accepted bodies keep their order."""
    bodies = DatagramBodies(10, 2)
    assert bodies.add(b"aaaa")
    assert bodies.add(b"bbbbbb")
    assert bodies.add(b"eeeeeeee")
    assert not bodies.add(b"fff")
    assert bodies.add(b"gg")
    assert not bodies.add(b"h" * 11)
    assert bodies.bodies == [[b"aaaa", b"bbbbbb"], [b"eeeeeeee", b"gg"]]
