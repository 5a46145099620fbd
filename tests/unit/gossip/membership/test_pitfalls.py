"""Known failures of other membership protocols, each by its name; those of trees are in `tests/unit/gossip/tree`."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from gossipkv.address import Address
from gossipkv.gossip.core import GossipLimits
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import Link, Node, all_alive, all_see
from tests.unit.gossip.membership.believing import Believer, member

ALIVE, SUSPECT, DEAD, LEFT = MemberState
SECOND_MS = 1000
SHORT_MEMORY = replace(LAN, dead_retention_ms=600_000)


def halves(link: Link, nodes: list[Node]) -> None:
    left = {node.address for node in nodes[: len(nodes) // 2]}
    link.cut = lambda source, to: (source in left) != (to in left)


# 1. Dissemination


def test_dogpile_rumours_are_bounded():
    """Confirmations spread only while they shorten the time: fifty accusers make three rumours."""
    believer = Believer(*(member(f"n{i}") for i in range(60)), member("x"))
    told = 0
    for number in range(50):
        believer.rumours.remove(member("x").id)
        believer.verdict(member("x", SUSPECT), accuser=f"n{number}")
        told += member("x").id in believer.rumours
    assert told == 3


def test_memberlist_299_neither_kind_of_news_starves():
    """System messages were drained before the users'; here each kind has half a packet (see test_spreading.py too)."""
    link = Link()
    nodes = link.cluster(6)
    for _ in range(30):
        for number in range(200):
            nodes[0].core._rumours.add(
                number.to_bytes(8, "big"), messages.verdict(messages.MemberVerdict(bytes(8), SUSPECT, 0, 1, bytes(8)))
            )
        nodes[0].core.tree.publish("a/key", b"value")
        link.settle(nodes[0])
        link.run(100)
    assert all(node.core.tree.children("a") == ["key"] for node in nodes)


# 2. Verdicts


def test_nobody_is_killed_on_hearsay():
    """An exchange that reports a death makes the member suspect, with the whole time to refute."""
    believer = Believer(*(member(f"n{i}") for i in range(10)), member("x"))
    believer.record(member("x", DEAD, incarnation=0))
    assert believer.state("x") is SUSPECT
    believer.wait(LAN.suspicion_least_ms(11))
    assert believer.state("x") is SUSPECT


def test_a_node_never_seen_alive_is_never_dead():
    """A verdict about an unknown member is ignored; a record of a dead one is remembered and is no news."""
    believer = Believer()
    for state in (SUSPECT, DEAD, LEFT, ALIVE):
        believer.verdict(member("x", state))
        assert believer.state("x") is None
    believer.record(member("x", DEAD))
    assert believer.changes == [("x", None, DEAD)]
    assert member("x").id not in believer.rumours


def test_a_deaf_node_reads_before_it_judges():
    """After a cut, a node that hears many suspicions at once lets the suspects speak before the verdict."""
    link = Link()
    nodes = link.cluster(12)
    deaf, others = nodes[0], nodes[1:]
    link.cut = lambda source, to: deaf.address in {source, to}
    assert link.run(30 * SECOND_MS, lambda: "SUSPECT" in deaf.states().values())
    # The own suspicion expires as soon as two members confirm it, and not before.
    link.run(LAN.suspicion_least_ms(12) + SECOND_MS)
    suspect = next(change.member for change in deaf.changes if change.member.state is SUSPECT)
    said = messages.MemberVerdict(suspect.id, SUSPECT, suspect.incarnation, suspect.epoch, b"")
    heard = b"".join(messages.verdict(said._replace(accuser=member_id(node.me.name))) for node in others[-2:])
    link.cut = lambda source, to: False
    deaf.core.receive(
        deaf.envelope.wrap(messages.gossip(member_id(others[-1].me.name)) + heard),
        others[-1].address,
        now_ms=link.now_ms,
    )
    link.settle(deaf)
    assert link.run(5 * SECOND_MS, lambda: all_alive(nodes))
    dead = {change.member.name for node in nodes for change in node.changes if change.member.state is DEAD}
    assert dead <= {deaf.me.name}


def test_buddy():
    """The suspected member hears of the suspicion with the next ping, even if no rumour reaches it."""
    link = Link()
    nodes = link.cluster(6)
    x = nodes[3]
    suspecting = nodes[0]
    suspecting.core._beliefs.unanswered(x.core.members.own.id, now_ms=link.now_ms)
    for node in nodes:
        node.core._rumours.remove(x.core.members.own.id)
    assert link.run(8 * SECOND_MS, lambda: x.core.members.own.incarnation == 1)


def test_the_dead_hear_of_it_when_they_call():
    """A node that was taken for dead learns this from the answer to its first ping."""
    link = Link()
    nodes = link.cluster(6)
    link.freeze(nodes[5])
    link.run(60 * SECOND_MS)
    assert nodes[0].states()["n05"] == "DEAD"
    nodes[5].held.clear()  # Nothing waits in the node's socket.
    link.thaw(nodes[5])
    assert link.run(3 * SECOND_MS, lambda: all_alive(nodes))


def test_foca_25_no_flood_of_the_undead():
    """Two halves that took each other for dead heal without a flood of packets."""
    link = Link()
    nodes = link.cluster(10)
    halves(link, nodes)
    link.run(60 * SECOND_MS)
    link.cut = lambda source, to: False
    before = [node.sent for node in nodes]
    assert link.run(35 * SECOND_MS, lambda: all_alive(nodes))
    link.run(10 * SECOND_MS)
    sent = [node.sent - so_far for node, so_far in zip(nodes, before, strict=True)]
    assert max(sent) < 100_000  # About 45 s; a member at rest sends 150 bytes a second.
    before = [node.sent for node in nodes]
    link.run(30 * SECOND_MS)
    assert max(node.sent - so_far for node, so_far in zip(nodes, before, strict=True)) < 30 * 250


# 7. Asks in issues


@pytest.mark.parametrize("hours", [0.02, 1, 23])
def test_memberlist_222_partitions_heal_by_themselves(hours):
    """memberlist#222, foca#15, ringpop#42, ringpop-go#135, antrea#4491: halves find each other by themselves."""
    link = Link()
    nodes = link.cluster(4)
    halves(link, nodes)
    link.run(60 * SECOND_MS)
    if hours > 1:  # The rest of the day is nothing but this.
        for node in nodes:
            for peer in node.core.members.peers.values():
                peer.since_ms -= int(hours * 3_600_000)
    else:
        link.run(int(hours * 3_600_000))
    assert sorted(nodes[0].states().values()) == ["ALIVE", "ALIVE", "DEAD", "DEAD"]
    link.cut = lambda source, to: False
    assert link.run(35 * SECOND_MS, lambda: all_alive(nodes))


def test_many_dead_do_not_hide_the_one_that_came_back():
    """With forty dead names in the table, a partition of two nodes still heals in time."""
    link = Link()
    nodes = link.cluster(2)
    for number in range(40):
        ghost = Member(
            member_id(f"ghost{number}"), f"ghost{number}", b"g" * 16, Address("10.9.0.1", number + 1), 1, 0, DEAD
        )
        for node in nodes:
            node.core._beliefs.hear_record(ghost, now_ms=link.now_ms)
    halves(link, nodes)
    link.run(60 * SECOND_MS)
    link.cut = lambda source, to: False
    assert link.run(35 * SECOND_MS, lambda: all(list(node.states().values()).count("ALIVE") == 2 for node in nodes))


def test_habitat_5581_a_restart_beats_earlier_statements():
    """habitat#5581, memberlist#345: an incarnation from zero lost against the dead one's; a stored epoch beats any."""
    link = Link()
    nodes = link.cluster(4)
    for _ in range(3):
        link.freeze(nodes[3])
        link.run(7 * SECOND_MS)
        link.thaw(nodes[3])
        link.run(7 * SECOND_MS)
    assert nodes[3].core.members.own.incarnation > 0
    link.kill(nodes[3])
    link.run(40 * SECOND_MS)
    back = link.start(link.node("n03", epoch=2, port=nodes[3].address.port), nodes[0])
    assert link.run(3 * SECOND_MS, lambda: all_alive([*nodes[:3], back]))


@pytest.mark.parametrize("left", [False, True], ids=["died", "left"])
def test_consul_6897_same_name_new_address(left):
    """memberlist#157, #189, consul#6897, cortex#2130: a free name is accepted at another address at once."""
    link = Link()
    nodes = link.cluster(4)
    if left:
        nodes[3].core.leave(now_ms=link.now_ms)
        link.settle(nodes[3])
        link.run(SECOND_MS)
    link.kill(nodes[3])
    link.run(0 if left else 40 * SECOND_MS)
    assert {node.states()["n03"] for node in nodes[:3]} == {"LEFT" if left else "DEAD"}
    back = link.start(link.node("n03", epoch=2, port=9999), nodes[0])
    assert link.run(3 * SECOND_MS, lambda: all_alive([*nodes[:3], back]))
    assert {node.core.members.get(back.core.members.own.id).address for node in nodes[:3]} == {back.address}


def test_serf_604_the_dead_go():
    """serf#604, consul#21633, consul#1440: all members forget the dead in time and for good."""
    link = Link()
    nodes = link.cluster(6, profile=SHORT_MEMORY)
    link.kill(nodes.pop())
    link.run(60 * SECOND_MS)
    assert all_see(nodes, {node.me.name: "ALIVE" for node in nodes} | {"n05": "DEAD"})
    assert link.run(700 * SECOND_MS, lambda: all_alive(nodes))
    assert link.run(120 * SECOND_MS, lambda: not all_alive(nodes)) is False


def test_chitchat_161_the_dead_do_not_circulate():
    """chitchat#155, #161, quickwit#5135: all members forget a death together, whenever they learned of it."""
    link = Link()
    nodes = link.cluster(4, profile=SHORT_MEMORY)
    link.kill(nodes.pop())
    link.run(300 * SECOND_MS)
    late = [link.start(link.node(f"late{i}", profile=SHORT_MEMORY), nodes[0]) for i in range(2)]
    link.run(5 * SECOND_MS)
    assert all(node.states()["n03"] == "DEAD" for node in late)
    everybody = [*nodes, *late]
    assert link.run(330 * SECOND_MS, lambda: all_alive(everybody))
    assert link.run(900 * SECOND_MS, lambda: not all_alive(everybody)) is False


def test_scylla_14991_a_replaced_node_does_not_come_back():
    """Late statements about the old epoch of a replaced node change nothing."""
    link = Link()
    nodes = link.cluster(4)
    old = nodes[3].core.members.own
    link.kill(nodes[3])
    back = link.start(link.node("n03", epoch=2, port=9999), nodes[0])
    link.run(5 * SECOND_MS)
    everybody = [*nodes[:3], back]
    for said in (old, old._replace(incarnation=9), old._replace(state=DEAD, incarnation=9)):
        for node in everybody:
            head = messages.gossip(member_id("n00"))
            packet = node.envelope.wrap(head + messages.record(said))
            node.core.receive(packet, nodes[0].address, now_ms=link.now_ms)
            link.settle(node)
    assert link.run(30 * SECOND_MS, lambda: not all_alive(everybody)) is False


def test_chitchat_94_an_old_epoch_is_forgotten_with_the_new():
    """Ten restarts of a name leave one member in the table."""
    link = Link()
    nodes = link.cluster(3)
    for epoch in range(2, 12):
        link.kill(nodes[2])
        nodes[2] = link.start(link.node("n02", epoch=epoch, port=7000 + 100 * epoch), nodes[0])
        link.run(4 * SECOND_MS)
    assert all(len(node.core.members) == 3 for node in nodes)
    assert all_alive(nodes)


def test_consul_9927_queues_are_bounded():
    """consul#9926, consul#9927, memberlist#167: one rumour per subject, however often the subject changes."""
    believer = Believer(*(member(f"n{i}") for i in range(10)))
    for incarnation in range(1000):
        believer.verdict(member("n3", SUSPECT, incarnation=incarnation))
        believer.verdict(member("n3", ALIVE, incarnation=incarnation + 1))
    assert len(believer.rumours) <= 10


def test_memberlist_311_a_member_learns_of_each_member_that_it_pings():
    """Blind nodes: the hash on a ping reveals a member that knows this node but is not known here."""
    link = Link()
    nodes = link.cluster(4)
    blind, unseen = nodes[0].core, nodes[2].core.members.own
    blind.members.forget(unseen.id)
    blind.on_forgotten(unseen, now_ms=link.now_ms)
    assert not all_alive(nodes)
    assert link.run(10 * SECOND_MS, lambda: all_alive(nodes))


def test_flapping_does_not_end_a_node():
    """sequins#151, #157, #158: a flapping ZooKeeper ended it; here ten short partitions in a minute stop no node."""
    link = Link()
    nodes = link.cluster(6)
    for _ in range(10):
        halves(link, nodes)
        link.run(3 * SECOND_MS)
        link.cut = lambda source, to: False
        link.run(3 * SECOND_MS)
    assert link.run(20 * SECOND_MS, lambda: all_alive(nodes))
    assert all(node.stopped is None for node in nodes)


def test_members_are_bounded():
    """Records of new names fill the table only up to its limit; dead members make room for live ones."""
    link = Link()
    node = link.node("a", limits=GossipLimits(max_members=20))
    link.start(node)
    for number in range(100):
        state = DEAD if number < 50 else ALIVE
        said = Member(member_id(f"x{number}"), f"x{number}", b"u" * 16, Address("10.1.0.1", number + 1), 1, 0, state)
        node.core._beliefs.hear_record(said, now_ms=link.now_ms)
    assert len(node.core.members) == 20
    assert node.core.counters["members_full"] == 50 - 19
    assert "DEAD" not in node.states().values()


def test_isolated():
    """A node is isolated after half a suspicion time of silence, but not if all members have left or none is known."""
    link = Link()
    lone = link.start(link.node("lone", port=6000))
    link.run(60 * SECOND_MS)
    assert not lone.core.isolated(now_ms=link.now_ms)
    nodes = link.cluster(3)
    assert not nodes[0].core.isolated(now_ms=link.now_ms)
    link.cut = lambda source, to: nodes[0].address in {source, to}
    link.run(10)  # Packets under way have arrived.
    half_ms = LAN.suspicion_least_ms(3) // 2
    link.run(nodes[0].core.members.heard_ms + half_ms - link.now_ms)
    assert not nodes[0].core.isolated(now_ms=link.now_ms)
    assert nodes[0].core.isolated(now_ms=link.now_ms + 1)
    link.run(60 * SECOND_MS)
    assert nodes[0].core.isolated(now_ms=link.now_ms)  # The node stays isolated after it has given up on all members.
    assert not nodes[1].core.isolated(now_ms=link.now_ms)
    link.cut = lambda source, to: False
    assert link.run(15 * SECOND_MS, lambda: not nodes[0].core.isolated(now_ms=link.now_ms))
    assert link.run(20 * SECOND_MS, lambda: all_alive(nodes))
    for node in nodes[1:]:
        node.core.leave(now_ms=link.now_ms)
        link.settle(node)
    link.run(SECOND_MS)
    for node in nodes[1:]:
        link.kill(node)
    link.run(20 * SECOND_MS)
    assert not nodes[0].core.isolated(now_ms=link.now_ms)


def test_cut_off():
    """A node that hears nobody is cut off when the others have found it dead, but not after a stall of its own.

    Alone, it takes far longer to find the others dead than they take to find it dead. Requests that waited for its
    verdicts would wait in vain.
    """
    link = Link()
    nodes = link.cluster(3)
    first, second, third = nodes
    most_ms = LAN.probe_interval_ms + LAN.suspicion_least_ms(3)
    link.freeze(first)
    link.run(2 * most_ms)
    link.thaw(first)
    assert link.run(2 * most_ms, lambda: all_alive(nodes) or first.core.is_cut_off)
    assert not first.core.is_cut_off
    link.cut = lambda source, to: first.address in {source, to}
    link.run(10)  # Packets under way have arrived.
    link.run(first.core.members.heard_ms + most_ms - link.now_ms - 1)
    assert not first.core.is_cut_off
    assert link.run(most_ms, lambda: first.core.is_cut_off)
    assert (second.states()["n00"], third.states()["n00"]) != ("ALIVE", "ALIVE")
    assert not second.core.is_cut_off
    link.cut = lambda source, to: False
    assert link.run(15 * SECOND_MS, lambda: not first.core.is_cut_off)


def dead_among(nodes: list[Node]) -> set[tuple[str, str]]:
    """Return the deaths that members of this set reported of each other."""
    names = {node.me.name for node in nodes}
    return {
        (node.me.name, change.member.name)
        for node in nodes
        for change in node.changes
        if change.member.state is DEAD and change.member.name in names
    }


def test_scylla_5677_members_do_not_flap_for_lost_packets():
    """A threshold on the times between heartbeats made nodes flap; here a loss of half the packets kills none."""
    link = Link()
    nodes = link.cluster(16)
    link.loss = 0.5
    link.run(120 * SECOND_MS)
    assert dead_among(nodes) == set()


def test_chitchat_126_a_second_death_is_found_as_soon_as_the_first():
    """A window of old intervals delayed the second death; here a death leaves nothing behind."""
    link = Link()
    nodes = link.cluster(8)
    epochs = count(2)
    bound_ms = 2 * 8 * LAN.probe_interval_ms + LAN.suspicion_least_ms(8)
    for away_ms in (120 * SECOND_MS, 600 * SECOND_MS, 0):
        gone = nodes.pop()
        link.kill(gone)
        assert link.run(bound_ms, lambda: all(node.states()["n07"] == "DEAD" for node in nodes))
        link.run(away_ms)
        nodes.append(link.start(link.node("n07", epoch=next(epochs), port=gone.address.port), nodes[0]))
        assert link.run(10 * SECOND_MS, lambda: all_alive(nodes))


def test_alertmanager_1409_a_lone_node_queues_little():
    """The queue of an isolated member that publishes ten thousand times does not grow, and all keys arrive later."""
    link = Link()
    nodes = link.cluster(4)
    link.cut = lambda source, to: nodes[0].address in {source, to}
    sizes = set()
    for number in range(10_000):
        nodes[0].core.tree.publish(f"keys/{number % 40}", b"%d" % number)
        if number % 100 == 0:
            link.settle(nodes[0])
            link.run(100)
            sizes.add(nodes[0].core.tree.rumours.size)
    assert max(sizes) <= 2 * LAN.packet_bytes
    assert len(nodes[0].core._rumours) <= len(nodes)
    link.cut = lambda source, to: False
    assert link.run(35 * SECOND_MS, lambda: all(len(node.core.tree.children("keys")) == 40 for node in nodes))


@pytest.mark.parametrize("size", [1, 126, 127, 128, 255, 256, 1000])
def test_cortex_4326_any_number_of_parts_is_read_as_written(size):
    """A count of one byte broke messages of 127 members and more; here no count has one byte."""
    said = [messages.MemberVerdict(number.to_bytes(8, "big"), SUSPECT, number, 1, bytes(8)) for number in range(size)]
    assert [*messages.read_parts(b"".join(map(messages.verdict, said)), 0)] == said
    known = [messages.KnownMember(one.id, ALIVE, one.incarnation, 1, size, 0) for one in said]
    (part,) = messages.read_parts(
        messages.digest(bytes(8), b"\xff" * 8, [messages.known_member(one) for one in known]), 0
    )
    assert part.entries == tuple(known)
