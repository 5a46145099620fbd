"""Membership asserts its invariants: the step after a planted break catches it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from gossipkv.address import Address
from gossipkv.gossip.effects import AskOverTcp
from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, MemberState, member_id
from gossipkv.gossip.membership.detector import Detector
from gossipkv.gossip.membership.lifeguard import Awareness
from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.membership.timers import Timers
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.messages import KnownMember
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import CLUSTER_ID, Link
from tests.unit.gossip.membership.believing import Believer, member, verdict
from tests.unit.gossip.membership.recounted import recount, recount_core

if TYPE_CHECKING:
    from collections.abc import Callable

ALIVE, SUSPECT, DEAD, LEFT = MemberState


def believer() -> Believer:
    """Return a node that knows one alive, one suspect and one dead member."""
    return Believer(member("a"), member("b", SUSPECT), member("c", DEAD))


def count_wrong(broken: Believer) -> None:
    """Leave a peer that is neither reachable nor gone."""
    broken.members._gone.clear()
    broken.record(member("d"))


def hold_a_wrong_place(broken: Believer) -> None:
    broken.members._reachable.reverse()
    broken.verdict(member("a", DEAD))


def forget_a_suspicion(broken: Believer) -> None:
    broken.beliefs._suspicions.clear()
    broken.unanswered("b")


def keep_a_suspicion(broken: Believer) -> None:
    """Keep the suspicion of a member that is dead already."""
    broken.members.put(member("b", DEAD), broken.now_ms)
    broken.wait(200_000)


def know_too_many(broken: Believer) -> None:
    broken.members.most = 2
    broken.beliefs._make_room = lambda now_ms: True
    broken.record(member("d"))


BREAKS: dict[str, tuple[str, Callable[[Believer], object]]] = {
    "a rank that falls": ("MemberTable.put", lambda broken: broken.beliefs._become(member("c", SUSPECT), b"", 0)),
    "oneself among the peers": ("MemberTable.put", lambda broken: broken.beliefs._become(member("me"), b"", 0)),
    "an own rank that stays": ("MemberTable.put_own", lambda broken: broken.members.put_own(broken.members.own)),
    "a peer that is not counted": ("MemberTable._assert_counted", count_wrong),
    "a place that is another's": ("MemberTable._lose", hold_a_wrong_place),
    "a suspect without a suspicion": ("Beliefs._confirm", forget_a_suspicion),
    "a suspicion without a suspect": ("Beliefs._expire", keep_a_suspicion),
    "a dead one under suspicion": (
        "Beliefs._forget",
        lambda broken: broken.beliefs._forget(member("b", SUSPECT)._replace(state=DEAD), 0),
    ),
    "one more than are remembered": ("Beliefs._learn", know_too_many),
    "an epoch that was lived": ("Outbox.store", lambda broken: broken.outbox.store(lambda now_ms: None, epoch=1)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_of_the_table_is_caught(name: str) -> None:
    """The next step that relies on the broken part raises."""
    where, planted = BREAKS[name]
    broken = believer()
    with pytest.raises(AssertionError) as raised:
        planted(broken)
    assert raised.traceback[-1].frame.code.raw.co_qualname == where


def test_a_node_that_seems_healthier_for_a_failure_is_caught() -> None:
    """More helpers reported a failure than were asked."""
    with pytest.raises(AssertionError):
        Awareness(8).worse(-1)


def test_rumours_that_are_not_counted_are_caught() -> None:
    """Uncounted bytes would remain news for ever."""
    rumours = Rumours()
    rumours.add(b"a", b"about a")
    rumours.size += 1
    with pytest.raises(AssertionError):
        rumours.take(100, 1)


def test_an_overslept_timer_is_caught_and_runs_the_next_time() -> None:
    """The timer runs late, and no timer is lost."""
    timers = Timers()
    ran: list[int] = []
    timers.at(5, ran.append)
    timers.next_ms = 7
    with pytest.raises(AssertionError):
        timers.run(7)
    timers.run(8)
    assert ran == [8]


@pytest.mark.parametrize(
    ("plant", "where"),
    [
        ("dead", "Detector._probe"),
        ("forgotten", "Detector._probe"),
        ("probed already", "Detector._next"),
        ("never due again", "Detector.wake"),
        ("more failures than helpers", "Detector._give_up"),
    ],
)
def test_a_break_of_the_detector_is_caught(plant: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The assertion fails before a peer is probed or accused."""
    link = Link()
    node = link.cluster(2)[0]
    (peer,) = node.core.members.peers.values()
    detector = node.core._detector
    detector._target, detector._ring, detector._place = None, [peer], 0
    peer.awaits_probe = plant != "probed already"
    if plant == "dead":
        peer.member = peer.member._replace(state=DEAD)
    elif plant == "forgotten":
        del node.core.members.peers[peer.member.id]
    elif plant == "never due again":
        monkeypatch.setattr(Detector, "_probe", lambda self, now_ms: None)
    elif plant == "more failures than helpers":
        detector._target, detector._asked, detector._nacks = peer, 0, 1
    with pytest.raises(AssertionError) as raised:
        detector.wake(link.now_ms)
    assert raised.traceback[-1].frame.code.raw.co_qualname == where


def test_two_questions_to_one_seed_are_caught() -> None:
    """A seed gets one question at a time, and an answer needs a question."""
    link = Link()
    node = link.node("a")
    link.start(node, Address("10.0.0.1", 9))
    joining = node.core._joining
    ((address, seed),) = joining._seeds.items()
    with pytest.raises(AssertionError):
        joining._ask(address, seed, link.now_ms)
    joining._answered(address, seed, None, link.now_ms)
    with pytest.raises(AssertionError):
        joining._answered(address, seed, None, link.now_ms)


def test_a_pinned_node_that_goes_over_is_caught() -> None:
    """The catalogue of such a node would belong to no cluster."""
    node = Link().node("a", pinned=True)
    with pytest.raises(AssertionError):
        node.core._joining._take(b"another!")


def test_a_packet_beyond_its_size_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger packet could be cut or lost on its way."""
    node = Link().cluster(2)[0]
    node.core._rumours.add(b"subject", b"news")
    monkeypatch.setattr(Rumours, "take", lambda self, room, limit: [bytes(room + 1)])
    with pytest.raises(AssertionError):
        node.core._spreading.laden(messages.gossip(node.core.members.own.id))


def test_a_change_that_is_not_in_the_table_is_caught() -> None:
    """The tree and the exchange would use a record that membership does not have."""
    node = Link().cluster(2)[0]
    (peer,) = node.core.members.peers.values()
    with pytest.raises(AssertionError):
        node.core.on_changed(peer.member._replace(incarnation=9), ALIVE, now_ms=0)


# Statements of peers

EPOCHS = (0, 1, 1, 2, 2, 3, MAX_EPOCH - 1, MAX_EPOCH)
INCARNATIONS = (0, 0, 1, 2, 3, MAX_INCARNATION - 1, MAX_INCARNATION)
AGES_S = (0, 1, 999, 1000, 172_800, 173_800, 1 << 40, (1 << 62) - 1)


def step(random: Random, told: Believer) -> None:
    """Let a peer speak, a probe fail, or time pass."""
    said = member(
        random.choice(("me", "a", "b", "c", "d", "e")),
        random.choice(list(MemberState)),
        epoch=random.choice(EPOCHS),
        incarnation=random.choice(INCARNATIONS),
        port=random.choice((0, 0, 9)),
    )
    match random.randrange(8):
        case 0 | 1:
            told.record(said)
        case 2 | 3:
            told.beliefs.hear_verdict(verdict(said, random.choice(("a", "b", "x"))), now_ms=told.now_ms)
        case 4:
            age_s = random.choice(AGES_S)
            known = KnownMember(said.id, said.state, said.incarnation, said.epoch, 0, age_s)
            told.beliefs.hear_age(known, first=random.random() < 0.2, now_ms=told.now_ms)
        case 5:
            told.unanswered(said.name)
        case 6:
            told.rumours.take(random.randrange(300), 3)
        case 7:
            answer(random, told)
            told.wait(random.choice((0, 1, 1000, 30_000, LAN.dead_retention_ms)))


def answer(random: Random, told: Believer) -> None:
    """Deliver some of the outstanding answers, in any order."""
    tokens = [*told.outbox._storing, *told.outbox._asked]
    random.shuffle(tokens)
    for token in tokens[: random.randrange(4)]:
        told.outbox.stored(token, told.now_ms)
        told.outbox.answered(token, None, told.now_ms)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_peers_say_breaks_the_table(seed: int) -> None:
    """No assertion fails for any statements in any order, beyond the limit of members too, and a recount agrees."""
    random = Random(seed)
    told = Believer(most=random.choice((1, 2, 4, 100)))
    for _ in range(100):
        step(random, told)
        recount(told.members, told.beliefs, told.rumours, told.timers)


def meet(random: Random, link: Link, node_address: Address) -> None:
    """Send a question or an answer from a random cluster."""
    node = link.nodes[node_address]
    envelope = Envelope("c", random.choice((NO_CLUSTER, CLUSTER_ID, b"another!", bytes([255]) * 8)))
    said = messages.sync(member_id(random.choice("abc")), random.randbytes(8), random.randrange(64))
    packet = envelope.wrap(said)
    if random.random() < 0.5:
        node.core.reply(packet, now_ms=link.now_ms)
    asks = [effect for effect in node.core.take() if isinstance(effect, AskOverTcp)]
    for ask in asks:
        node.core.answered(ask.token, random.choice((packet, packet, None)), now_ms=link.now_ms)
    for token in list(node.core._outbox._storing)[: random.randrange(3)]:
        node.core.stored(token, now_ms=link.now_ms)


@pytest.mark.parametrize("seed", range(20))
def test_no_meeting_breaks_what_joining_holds(seed: int) -> None:
    """No assertion fails for any cluster ids and flags, and a pinned id stays."""
    random = Random(seed)
    link = Link(seed)
    own_id, pinned = random.choice((NO_CLUSTER, CLUSTER_ID)), random.random() < 0.5
    node = link.node("a", cluster_id=own_id, pinned=pinned)
    seeds = [Address("10.0.0.1", 9), Address("10.0.0.1", 10)]
    cut = random.randrange(3)
    node.core.start(joins=seeds[:cut], remembered=seeds[cut:], now_ms=link.now_ms)
    for _ in range(60):
        meet(random, link, node.address)
        link.now_ms += random.choice((0, 200, 1000, 10_000))
        node.core.wake(now_ms=link.now_ms)
        recount_core(node.core)
        if pinned and own_id != NO_CLUSTER:
            assert node.envelope.cluster_id == own_id
