"""Probes go directly, through helpers and over TCP; failures count against the right node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipkv.address import Address
from gossipkv.gossip.member import MemberState, member_id
from gossipkv.gossip.membership.detector import MAX_HINTS, MAX_RELAYS, Detector
from gossipkv.gossip.packets import messages
from gossipkv.gossip.profile import LAN, PROFILES
from tests.unit.gossip.links import Link, Node, all_alive

SECOND_MS = 1000


def cut_between(one: Node, other: Node):
    pair = {one.address, other.address}
    return lambda source, to: {source, to} == pair


def test_everybody_is_probed_in_turn(monkeypatch):
    """In each round every peer gets exactly one PING, in changing order."""
    link = Link()
    nodes = link.cluster(9)
    link.run(20 * SECOND_MS)
    probed: list[bytes] = []
    core = nodes[0].core
    original = Detector.ping

    def ping(self, sequence, target, **how):
        if self is core._detector:
            probed.append(target)
        return original(self, sequence, target, **how)

    monkeypatch.setattr(Detector, "ping", ping)
    core._detector._place = len(core._detector._ring)  # A new round begins.
    link.run(24 * SECOND_MS)
    rounds = [probed[begin : begin + 8] for begin in (0, 8, 16)]
    assert [len(set(one)) for one in rounds] == [8, 8, 8]
    assert rounds[0] != rounds[1] or rounds[1] != rounds[2]


def test_others_try():
    """Two nodes that cannot hear each other stay alive for each other: helpers reach both."""
    link = Link()
    nodes = link.cluster(8)
    link.cut = cut_between(nodes[0], nodes[1])
    assert link.run(120 * SECOND_MS, lambda: not all_alive(nodes)) is False
    assert nodes[0].core.counters["probes_saved_by_tcp"] == 0
    names = [node.core.members.own.name for node in nodes]
    unheard = [node.core.unheard(now_ms=link.now_ms) for node in nodes]
    assert unheard == [[names[1]], [names[0]], *[[]] * 6]
    link.cut = lambda source, to: nodes[0].address in {source, to}  # A node that hears nobody names nobody.
    link.run(20 * SECOND_MS)
    assert nodes[0].core.unheard(now_ms=link.now_ms) == []


def test_tcp_saves():
    """A node that no datagram reaches is probed over TCP and never suspected."""
    link = Link()
    nodes = link.cluster(4)
    lonely = nodes[3].address
    link.udp_cut = lambda source, to: lonely in {source, to}
    assert link.run(60 * SECOND_MS, lambda: not all_alive(nodes)) is False
    assert nodes[3].core.counters["probes_saved_by_tcp"] >= 50


def test_who_answers_over_tcp_was_heard():
    """Keys of a member that answers only over TCP stay fresh."""
    link = Link()
    nodes = link.cluster(4)
    nodes[3].core.tree.publish("a/b")
    link.settle(nodes[3])
    link.run(SECOND_MS)
    link.udp_cut = lambda source, to: True
    for _ in range(12):
        link.run(10 * SECOND_MS)
        ages = [node.core.tree.entries("a", now_ms=link.now_ms)[0].age_ms for node in nodes[:3]]
        assert max(ages) <= 10 * SECOND_MS
        assert not any(node.core.isolated(now_ms=link.now_ms) for node in nodes)


def test_news_over_tcp():
    """Pings over TCP carry news where no datagram gets through."""
    link = Link()
    nodes = link.cluster(4)
    lonely = nodes[3].address
    link.udp_cut = lambda source, to: lonely in {source, to}
    newer = link.start(link.node("x"), nodes[0])
    assert link.run(20 * SECOND_MS, lambda: all_alive([*nodes, newer]))


def test_one_way():
    """A node that is heard but hears nothing is not found dead while TCP or helpers reach it."""
    link = Link()
    nodes = link.cluster(6)
    link.udp_cut = lambda source, to: to == nodes[2].address
    assert link.run(60 * SECOND_MS, lambda: any("DEAD" in node.states().values() for node in nodes)) is False


def test_helpers_that_say_nothing_speak_against_me():
    """A node with a bad network blames itself: its interval grows, and it accuses later."""
    link = Link()
    nodes = link.cluster(8)
    bad = nodes[0]
    link.cut = lambda source, to: bad.address in {source, to}
    link.run(20 * SECOND_MS)
    assert bad.core._detector._awareness.score == LAN.awareness_most - 1
    assert all(node.core._detector._awareness.score == 0 for node in nodes[1:])
    link.cut = lambda source, to: False
    assert link.run(60 * SECOND_MS, lambda: bad.core._detector._awareness.score == 0)


def test_helpers_that_failed_too_speak_for_me():
    """Helpers report their own failure to reach a dead member, so the prober's health score stays good."""
    link = Link()
    nodes = link.cluster(8)
    link.kill(nodes.pop())
    assert link.run(30 * SECOND_MS, lambda: any(node.core._detector._awareness.score > 0 for node in nodes)) is False


def test_who_comes_and_goes_does_not_keep_the_others_from_their_turn():
    """The round does not grow with the number of departures and returns."""
    link = Link()
    nodes = link.cluster(8)
    core, other = nodes[0].core, nodes[3].core.members.own
    for epoch in range(2, 1000):
        core._beliefs.hear_record(other._replace(epoch=epoch, state=MemberState.LEFT), now_ms=link.now_ms)
        core._beliefs.hear_record(other._replace(epoch=epoch + 1), now_ms=link.now_ms)
    assert len(core._detector._ring) <= 2 * len(nodes)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_nack_comes_in_time(name):
    """A helper reports a failure while the prober still listens, and after an ACK had its chance."""
    profile = PROFILES[name]
    assert profile.probe_timeout_ms + profile.nack_ms < profile.probe_interval_ms
    assert profile.nack_ms >= min(profile.probe_timeout_ms, 300) // 2


def test_late_but_within_the_interval():
    """An ACK after the time-out but within the interval counts as an answer."""
    link = Link()
    nodes = link.cluster(4)
    link.delay_ms = 300  # The round trip of 600 ms exceeds the time-out of 500 ms.
    assert link.run(60 * SECOND_MS, lambda: not all_alive(nodes)) is False


def test_a_new_life_is_not_accused_of_the_silence_of_the_old_one():
    """A probe that began before its target restarted at another port says nothing about the new life."""
    for when in range(0, 7 * SECOND_MS, 250):
        link = Link()
        nodes = link.cluster(8)
        link.run(when)
        old, others = nodes.pop(), nodes
        link.kill(old)
        link.run(300)
        newer = link.start(link.node(old.me.name, epoch=2, port=9999, uuid=old.me.uuid), others[0])
        link.run(10 * SECOND_MS)
        changes = [change.member for node in others for change in node.changes]
        assert {one.state for one in changes if one.name == old.me.name and one.epoch == 2} == {MemberState.ALIVE}
        assert newer.core.members.own.incarnation == 0


def test_an_ack_of_an_older_probe_is_no_answer():
    """Sequence numbers tell probes apart: an old ACK does not save the member that is probed now."""
    link = Link()
    nodes = link.cluster(3)
    detector = nodes[0].core._detector
    target = detector._target
    while target is None:
        link.run(1)
        target = detector._target
    for wrong in (b"\0\0\0\0", detector._sequence[::-1]):
        if wrong != detector._sequence:
            detector.acknowledged(wrong, link.now_ms)
            assert detector._target is target
    detector.acknowledged(detector._sequence, link.now_ms)
    assert detector._target is None


def test_a_ping_for_another_is_not_answered():
    """A node that took over a dead member's address does not answer for it."""
    link = Link()
    nodes = link.cluster(4)
    link.kill(nodes[3])
    other = link.start(link.node("other", port=nodes[3].address.port), nodes[0])
    assert link.run(40 * SECOND_MS, lambda: nodes[0].states().get("n03") == "DEAD")
    assert other.core.counters["dropped_not_for_me"] > 0
    assert nodes[0].states()["other"] == "ALIVE"


def test_a_hint_is_looked_into():
    """A failed request brings the next probe forward and is no verdict."""
    link = Link()
    nodes = link.cluster(20)
    link.run(5 * SECOND_MS)
    lost = nodes[13]
    link.kill(lost)
    nodes[0].core.suspect_hint(member_id("n13"), now_ms=link.now_ms)
    assert nodes[0].states()["n13"] == "ALIVE"
    assert link.run(2100, lambda: nodes[0].states()["n13"] == "SUSPECT")


def test_hints_are_bounded():
    """Few hints are kept, each member once, and no unknown members."""
    link = Link()
    nodes = link.cluster(4)
    for _ in range(50):
        for number in range(40):
            nodes[0].core.suspect_hint(member_id(f"n{number:02}"), now_ms=link.now_ms)
    assert len(nodes[0].core._detector._hints) == 3 <= MAX_HINTS
    link.run(10 * SECOND_MS)
    assert nodes[0].core._detector._hints == []
    assert all_alive(nodes)


def test_hints_leave_the_others_their_turn():
    """A death is found by members without a hint, even while requests to a live member keep failing."""
    link = Link()
    nodes = link.cluster(3)
    link.run(5 * SECOND_MS)
    link.kill(nodes[2])

    def is_found():
        nodes[0].core.suspect_hint(member_id("n01"), now_ms=link.now_ms)
        nodes[1].core.suspect_hint(member_id("n00"), now_ms=link.now_ms)
        return nodes[0].states()["n02"] == "SUSPECT"

    assert link.run(10 * SECOND_MS, is_found)


def test_relays_are_bounded():
    """The number of relayed probes is limited, and all are forgotten in time."""
    link = Link()
    node = link.cluster(2)[0]
    ask = messages.ping_request(member_id("n01"), 1, member_id("x"), Address("10.0.0.9", 1))
    for _ in range(MAX_RELAYS + 50):
        node.core.receive(node.envelope.wrap(ask), Address("10.0.0.8", 1), now_ms=link.now_ms)
    assert len(node.core._detector._relays) == MAX_RELAYS
    assert node.core.counters["relays_full"] == 50
    link.settle(node)
    link.run(2 * SECOND_MS)
    assert node.core._detector._relays == {}


def test_a_stall_accuses_nobody():
    """A process that stood still does not hold the silence against other members."""
    link = Link()
    nodes = link.cluster(8)
    link.run(5 * SECOND_MS)
    for seconds in (2, 7, 20, 60):
        link.freeze(nodes[0])
        link.run(seconds * SECOND_MS)
        before = len(nodes[0].changes)
        link.thaw(nodes[0])
        link.run(1500)
        assert all(change.member.state is MemberState.ALIVE for change in nodes[0].changes[before:])
        assert link.run(20 * SECOND_MS, lambda: all_alive(nodes))
    assert nodes[0].core.counters["stalls"] >= 4


def test_four_of_sixteen_frozen_for_twenty_seconds():
    """Only the frozen nodes may be found dead; after they thaw, all nodes see them alive."""
    link = Link()
    nodes = link.cluster(16)
    frozen, awake = nodes[:4], nodes[4:]
    for node in frozen:
        link.freeze(node)
    link.run(20 * SECOND_MS)
    for node in frozen:
        link.thaw(node)
    assert link.run(5 * SECOND_MS, lambda: all_alive(nodes))
    names = {node.me.name for node in frozen}
    for node in nodes:
        assert {one.member.name for one in node.changes if one.member.state is MemberState.DEAD} <= names
    assert all(node.core.members.own.incarnation == 0 for node in awake)


def test_timers_late_early_and_doubled():
    """Late, early and doubled wake-ups cause no deaths and no more than one ping per interval."""
    link = Link(seed=3)
    nodes = link.cluster(5)

    def disturb() -> None:
        for node in nodes:
            for _ in range(link.random.randrange(3)):
                node.core.wake(now_ms=link.now_ms)
                link.settle(node)
        link.at(link.random.randrange(1, 400), disturb)

    link.at(1, disturb)
    sent = [node.sent for node in nodes]
    assert link.run(60 * SECOND_MS, lambda: not all_alive(nodes)) is False
    # Per second a ping and an answer with envelopes, plus occasional exchanges.
    assert all(node.sent - before < 60 * 2 * 80 + 4000 for node, before in zip(nodes, sent, strict=True))


def test_n_of_two():
    """In a cluster of two the survivor finds the other dead without helpers or confirmation."""
    link = Link()
    nodes = link.cluster(2)
    link.kill(nodes[1])
    assert link.run(9 * SECOND_MS, lambda: nodes[0].states()["n01"] == "DEAD")


def test_without_lifeguard():
    """Plain SWIM has no nacks and no local health."""
    link = Link()
    nodes = link.cluster(6, profile=replace(LAN, lifeguard=False))
    bad = nodes[0]
    link.cut = lambda source, to: bad.address in {source, to}
    link.run(20 * SECOND_MS)
    assert bad.core._detector._awareness.score == 0
