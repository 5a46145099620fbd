"""One well-formed false packet, sent to a cluster without keys, has only short effects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipkv.address import Address
from gossipkv.gossip.core import GossipLimits
from gossipkv.gossip.effects import SendDatagram
from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, Member, MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.messages import BranchChange, BranchHead, Delta, KnownMember, MemberVerdict, Who
from gossipkv.gossip.profile import LAN, TimingProfile
from tests.unit.gossip.links import Link, Node, all_alive

LIED_ABOUT = member_id("n01")
FAR = 1 << 40


def cluster(size: int = 4, *, profile: TimingProfile = LAN) -> tuple[Link, list[Node]]:
    """Return nodes that know each other and each other's keys."""
    link = Link()
    nodes = link.cluster(size, profile=profile)
    for node in nodes:
        node.core.tree.publish(f"nodes/{node.me.name}")
    assert link.run(10_000, lambda: same(nodes))
    return link, nodes


def same(nodes: list[Node], extra: tuple[str, ...] = ()) -> bool:
    """Return True if all nodes see each other alive and see all published keys."""
    expected = sorted([*(node.me.name for node in nodes), *extra])
    return all_alive(nodes) and all(node.core.tree.children("nodes") == expected for node in nodes)


def lie(link: Link, node: Node, *parts: bytes) -> None:
    """Send a packet from an unknown node."""
    message = messages.gossip(member_id("liar")) + b"".join(parts)
    node.core.receive(node.envelope.wrap(message), node.address, now_ms=link.now_ms)
    link.settle(node)


def delta(**numbers: object) -> bytes:
    """Return a DELTA of a branch that its owner never had."""
    change = (BranchChange(FAR, "nodes/invented", b""),)
    invented = Delta(LIED_ABOUT, epoch=1, floor=0, since=1, reach=FAR, target=FAR, reset=False, changes=change)
    return messages.delta(invented._replace(**numbers))


def record(node: Node, **what: object) -> bytes:
    """Return a false RECORD of a member."""
    return messages.record(node.core.members.own._replace(**what))


TOO_MUCH = tuple(BranchChange(FAR - number, f"nodes/{number}", None) for number in range(1024, 0, -1))

BRANCHES = {
    "versions_to_come": delta(),
    "a_reset": delta(reset=True, since=0, floor=1 << 39),
    "a_piece": delta(target=FAR + 1),
    "more_than_a_branch_may_take": delta(changes=TOO_MUCH),
    "the_next_epoch": delta(epoch=2),
    "a_far_epoch": delta(epoch=FAR),
    "no_path": delta(changes=(BranchChange(FAR, "//", b""),)),
    "a_head": messages.head(BranchHead(LIED_ABOUT, 1, FAR)),
    "a_head_of_a_far_epoch": messages.head(BranchHead(LIED_ABOUT, FAR, FAR)),
}


@pytest.mark.parametrize("part", BRANCHES.values(), ids=BRANCHES)
def test_an_invented_branch_ends(part: bytes) -> None:
    """Keys that the owner publishes later are visible everywhere, and invented keys nowhere."""
    link, nodes = cluster()
    lie(link, nodes[0], part)
    link.run(2000)
    nodes[1].core.tree.publish("nodes/news")
    link.settle(nodes[1])
    assert link.run(35_000, lambda: same(nodes, ("news",))), [node.core.tree.children("nodes") for node in nodes]


@pytest.mark.parametrize("ahead", [1, 1_000_000])
def test_a_transfer_that_was_never_begun_ends(ahead: int) -> None:
    """A piece without the rest has no effect; later keys of the owner arrive, more than a part of them too."""
    link, nodes = cluster()
    version = nodes[1].core.tree.head(LIED_ABOUT).version
    lie(link, nodes[0], delta(since=version, reach=version + ahead, target=FAR, changes=()))
    link.run(2000)
    names = [f"{number:04}" for number in range(380)]
    for name in names:
        nodes[1].core.tree.publish(f"many/{name}", bytes(200))
    link.settle(nodes[1])
    assert link.run(60_000, lambda: all(node.core.tree.children("many") == names for node in nodes))
    for name in names:
        nodes[1].core.tree.withdraw(f"many/{name}")
    link.settle(nodes[1])
    assert link.run(60_000, lambda: not any(node.core.tree.children("many") for node in nodes))


STATEMENTS = {
    "suspected": {"state": MemberState.SUSPECT},
    "dead": {"state": MemberState.DEAD, "incarnation": 5},
    "dead_for_ever": {"state": MemberState.DEAD, "incarnation": MAX_INCARNATION},
    "left": {"state": MemberState.LEFT},
    "left_for_ever": {"state": MemberState.LEFT, "incarnation": MAX_INCARNATION},
    "to_come": {"epoch": FAR},
    "to_come_and_dead": {"epoch": FAR, "state": MemberState.DEAD},
    "another_uuid": {"uuid": b"\xff" * 16},
}


@pytest.mark.parametrize("what", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("hearer", [0, 1], ids=["another", "itself"])
def test_a_lie_about_a_member_is_refuted(what: dict[str, object], hearer: int) -> None:
    """The member itself refutes the lie within seconds, whichever node heard it, and its keys return."""
    link, nodes = cluster()
    lie(link, nodes[hearer], record(nodes[1], **what))
    link.run(1000)
    assert link.run(35_000, lambda: same(nodes)), [node.states() for node in nodes]
    assert all(node.stopped is None for node in nodes)


@pytest.mark.parametrize("state", [MemberState.SUSPECT, MemberState.DEAD, MemberState.LEFT])
@pytest.mark.parametrize("incarnation", [0, 7, MAX_INCARNATION])
def test_a_forged_verdict_is_refuted(state: MemberState, incarnation: int) -> None:
    """The member refutes a verdict like a record."""
    link, nodes = cluster()
    lie(link, nodes[0], messages.verdict(MemberVerdict(LIED_ABOUT, state, incarnation, 1, member_id("liar"))))
    link.run(1000)
    assert link.run(35_000, lambda: same(nodes)), [node.states() for node in nodes]


def test_the_last_epoch_does_no_more_harm_than_it_must() -> None:
    """A lie that uses up a name's epochs costs that name, and no other member or node."""
    link, nodes = cluster()
    lie(link, nodes[0], record(nodes[1], epoch=MAX_EPOCH, state=MemberState.LEFT))
    link.run(40_000)
    others = [nodes[0], *nodes[2:]]
    assert all(node.states() == {"n00": "ALIVE", "n01": "LEFT", "n02": "ALIVE", "n03": "ALIVE"} for node in others)
    assert all(node.stopped is None for node in nodes)


@pytest.mark.parametrize("uuid", [None, b"new directory---"], ids=["its own directory", "a new directory"])
def test_a_name_without_a_next_epoch_is_free_once_it_is_forgotten(uuid: bytes | None) -> None:
    """While the others remember the name, the node is lost even with a new data directory."""
    link, nodes = cluster(profile=replace(LAN, dead_retention_ms=60_000))
    lie(link, nodes[0], record(nodes[1], epoch=MAX_EPOCH, state=MemberState.LEFT))
    link.run(5000)
    others = [nodes[0], *nodes[2:]]
    link.kill(nodes[1])
    assert link.run(90_000, lambda: all_alive(others))
    again = link.start(link.node("n01", uuid=uuid, port=nodes[1].address.port), nodes[0])
    assert link.run(10_000, lambda: all_alive([again, *others])), [node.states() for node in others]


def test_an_invented_member_dies() -> None:
    """The ghost is probed, suspected and dead; the real members never lose each other."""
    link, nodes = cluster()
    ghost = Member(member_id("ghost"), "ghost", bytes(16), nodes[0].address, 1, 0, MemberState.ALIVE)
    lie(link, nodes[0], messages.record(ghost))
    expected = {node.me.name: "ALIVE" for node in nodes} | {"ghost": "DEAD"}
    assert link.run(35_000, lambda: all(node.states() == expected for node in nodes))


# Strangers: packets from anywhere, with an invented source

STRANGER = Address("192.0.2.1", 9)
ELSEWHERE = Address("203.0.113.9", 53)
WHOLE = messages.digest(bytes(8), b"\xff" * 8, ())
FROM_STRANGERS = {
    "ping": messages.ping(member_id("liar"), 1, member_id("n00"), b"\xff" * 8),
    "ping_of_a_member": messages.ping(member_id("n01"), 1, member_id("n00"), b"\xff" * 8),
    "ack": messages.ack(member_id("liar"), 1, b"\xff" * 8),
    "ack_of_a_member": messages.ack(member_id("n01"), 1, b"\xff" * 8),
    "sync": messages.sync(member_id("liar"), b"\xff" * 8, 0),
    "sync_of_a_member": messages.sync(member_id("n01"), b"\xff" * 8, 0),
    "digest": messages.sync(member_id("liar"), b"\xff" * 8, 0) + WHOLE,
    "digest_of_a_member": messages.sync(member_id("n01"), b"\xff" * 8, 0) + WHOLE,
    "want": messages.sync(member_id("liar"), b"\xff" * 8, messages.REPLY)
    + messages.want([messages.known_member(KnownMember(member_id("n01"), MemberState.ALIVE, 0, 0, 0, 0))]),
    "head": messages.gossip(member_id("liar")) + messages.head(BranchHead(LIED_ABOUT, 1, FAR)),
    "heads": messages.gossip(member_id("liar"))
    + b"".join(messages.head(BranchHead(number.to_bytes(8, "big"), 1, FAR)) for number in range(200)),
    "head_on_a_ping": messages.ping(member_id("liar"), 1, member_id("n00"), b"\xff" * 8)
    + messages.head(BranchHead(LIED_ABOUT, 1, FAR)),
    "head_on_an_ack": messages.ack(member_id("liar"), 1, b"\xff" * 8) + messages.head(BranchHead(LIED_ABOUT, 1, FAR)),
    "head_of_a_member": messages.gossip(member_id("n01")) + messages.head(BranchHead(LIED_ABOUT, 1, FAR)),
    "gap": messages.gossip(member_id("liar")) + delta(epoch=9),
    "ping_request": messages.ping_request(member_id("liar"), 1, member_id("n01"), ELSEWHERE),
    "ping_request_of_a_member": messages.ping_request(member_id("n01"), 1, member_id("n02"), ELSEWHERE),
    "ping_request_about_a_stranger": messages.ping_request(member_id("n01"), 1, member_id("liar"), ELSEWHERE),
    "who": messages.who(messages.WHO, member_id("n00"), Who(1, bytes(16), 1, 1)),
}


@pytest.mark.parametrize("message", FROM_STRANGERS.values(), ids=FROM_STRANGERS)
def test_a_stranger_draws_hardly_more_than_it_sends(message: bytes) -> None:
    """A stranger with an invented source can neither cause a flood nor use up news meant for members."""
    link, nodes = cluster(8)
    link.run(20_000)
    for number in range(40):
        nodes[0].core.tree.publish(f"more/{number}", bytes(200))
    nodes[0].core.take()
    packet = nodes[0].envelope.wrap(message)
    for _ in range(3):
        link.now_ms += 5000
        nodes[0].core.receive(packet, STRANGER, now_ms=link.now_ms)
        link.now_ms += 600
        nodes[0].core.wake(now_ms=link.now_ms)  # A helper without an answer would report it now.
        drawn = [
            one for one in nodes[0].core.take() if isinstance(one, SendDatagram) and one.to in {STRANGER, ELSEWHERE}
        ]
        assert sum(len(one.packet) for one in drawn) <= 2 * len(packet)


def test_what_a_stranger_asks_for_is_answered_without_news() -> None:
    """A stranger that asks for a relay gets a bare ACK; a member that asks about a member gets news as well."""
    link, nodes = cluster(3)
    relay, target = nodes[0], nodes[2].core.members.own
    for sender, at, hears in (("liar", STRANGER, False), ("n01", STRANGER, False), ("n01", nodes[1].address, True)):
        relay.core.tree.publish(f"more/{sender}/{at.port}")
        relay.core.take()
        asked = messages.ping_request(member_id(sender), 7, target.id, target.address)
        relay.core.receive(relay.envelope.wrap(asked), at, now_ms=link.now_ms)
        (ping,) = (one for one in relay.core.take() if isinstance(one, SendDatagram))
        assert ping.to == target.address
        assert (len(relay.envelope.unwrap(ping.packet)) > messages.PING_BYTES) is hears
        sequence = relay.envelope.unwrap(ping.packet)[messages.SEQUENCE]
        ack = messages.ack(target.id, int.from_bytes(sequence, "big"), relay.core._exchange.state_hash)
        relay.core.receive(relay.envelope.wrap(ack), target.address, now_ms=link.now_ms)
        (answer,) = (one for one in relay.core.take() if isinstance(one, SendDatagram))
        assert answer.to == at
        assert (len(relay.envelope.unwrap(answer.packet)) > messages.ACK_BYTES) is hears


@pytest.mark.parametrize("state", [MemberState.ALIVE, MemberState.DEAD])
def test_an_age_of_all_time(state: MemberState) -> None:
    """Ages grow at each hop and must still fit their packet."""
    link, nodes = cluster(3)
    told = Member(member_id("x"), "x", bytes(16), Address("10.0.0.9", 9), 1, 0, state)
    known = messages.known_member(KnownMember(told.id, MemberState.ALIVE, 0, 1, 0, (1 << 63) - 1))
    parts = messages.record(told) + messages.digest(told.id, told.id, [known])
    message = messages.sync(member_id("liar"), bytes(8), messages.REPLY) + parts
    nodes[0].core.receive(nodes[0].envelope.wrap(message), nodes[1].address, now_ms=link.now_ms)
    request = nodes[0].core._exchange.request(now_ms=link.now_ms)
    nodes[1].core.reply(nodes[0].envelope.wrap(request), now_ms=link.now_ms)
    assert not nodes[1].core.counters["dropped_malformed"]


# The cost of each lie, as the table in docs/development/gossip-packets.md states it


def stores(nodes: list[Node]) -> int:
    """Return the number of epochs and cluster ids that had to be made durable."""
    return sum(len(node.stores) for node in nodes)


@pytest.mark.parametrize("state", [MemberState.SUSPECT, MemberState.DEAD])
def test_the_cost_of_a_refutation(state: MemberState) -> None:
    """Nothing is written; the incarnation rises by one."""
    link, nodes = cluster()
    before = stores(nodes)
    lie(link, nodes[0], messages.verdict(MemberVerdict(LIED_ABOUT, state, 0, 1, member_id("liar"))))
    assert link.run(35_000, lambda: nodes[1].core.members.own.incarnation == 1 and same(nodes))
    assert stores(nodes) == before


@pytest.mark.parametrize(
    "what", [{"epoch": FAR}, {"state": MemberState.LEFT}, {"address": Address("10.9.9.9", 9), "epoch": 7}]
)
def test_the_cost_of_an_epoch(what: dict[str, object]) -> None:
    """One epoch of one node is made durable; an address without a node is asked twice."""
    link, nodes = cluster()
    before = stores(nodes)
    lie(link, nodes[0], record(nodes[1], **what))
    link.run(1000)
    assert link.run(35_000, lambda: same(nodes))
    assert stores(nodes) == before + 1
    assert all(node.stopped is None and not node.complaints for node in nodes)


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_starting_node_is_told(answers: bool) -> None:
    """A node that is neither established nor sealed is stopped by an answer in its name; without one it waits."""
    link, nodes = cluster()
    place = Address("10.9.9.9", 9)
    if answers:
        elder = link.node("x", port=9, host="10.9.9.9", uuid=b"liar" * 4)
        link.start(elder, nodes[0])
        link.run(5000)
        del link.nodes[place]
    starting = link.node("x", epoch=2, port=9001)
    for node in nodes:
        ghost = Member(member_id("x"), "x", b"liar" * 4, place, FAR, 0, MemberState.ALIVE)
        lie(link, node, messages.record(ghost))
    if answers:
        link.nodes[place] = elder
    link.start(starting, nodes[0])
    if answers:
        assert link.run(10_000, lambda: starting.stopped is not None)
        assert str(place) in str(starting.stopped.error)
    else:
        own = starting.core.members.own
        assert link.run(10_000, lambda: {node.core.members.get(own.id).address for node in nodes} == {own.address})
        assert all_alive([*nodes, starting])
        assert len(starting.stores) == 1


def test_forged_pings_keep_nobody_alive() -> None:
    """A member that answers no probe dies despite pings in its name; only its age is wrong."""
    link, nodes = cluster()
    link.kill(nodes[1])
    ping = messages.ping(LIED_ABOUT, 1, member_id("n00"), bytes(8))
    acks = [messages.ack(LIED_ABOUT, number, bytes(8)) for number in range(50)]
    for _ in range(40):
        for message in (ping, *acks):
            nodes[0].core.receive(nodes[0].envelope.wrap(message), STRANGER, now_ms=link.now_ms)
        link.settle(nodes[0])
        link.run(1000)
    assert {node.states()["n01"] for node in (nodes[0], *nodes[2:])} == {"DEAD"}


def test_a_table_that_strangers_fill() -> None:
    """Invented members take newcomers' room until they are dead; no known member is lost."""
    link = Link()
    nodes = link.cluster(4, limits=GossipLimits(max_members=12))
    for number in range(100):
        ghost = Member(member_id(f"g{number}"), f"g{number}", bytes(16), STRANGER, 1, 0, MemberState.ALIVE)
        for node in nodes:
            lie(link, node, messages.record(ghost))
    for node in nodes:
        assert len(node.core.members) == 12
        assert node.core.counters["members_full"] > 0
    newcomer = link.start(link.node("new", limits=GossipLimits(max_members=12)), nodes[0])
    assert link.run(300_000, lambda: all(node.states().get("new") == "ALIVE" for node in nodes))
    everybody = [*nodes, newcomer]
    assert link.run(
        60_000, lambda: all(node.states()[one.me.name] == "ALIVE" for node in everybody for one in everybody)
    )


def meeting(flags: int, cluster_id: bytes) -> bytes:
    """Return a request over TCP from a node of another cluster with the same name."""
    return Envelope("c", cluster_id).wrap(messages.sync(member_id("liar"), bytes(8), flags))


def test_a_stranger_that_says_it_was_told_to_join() -> None:
    """One request moves a node to a smaller cluster id; nodes with a seed follow, and all are one cluster again."""
    link, nodes = cluster()
    before = stores(nodes)
    nodes[0].core.reply(meeting(messages.TOLD, b"\0" * 7 + b"\1"), now_ms=link.now_ms)
    link.settle(nodes[0])
    link.run(2000)
    assert nodes[0].envelope.cluster_id == b"\0" * 7 + b"\1"
    assert link.run(120_000, lambda: same(nodes))
    assert {node.envelope.cluster_id for node in nodes} == {b"\0" * 7 + b"\1"}
    assert stores(nodes) <= before + 2 * len(nodes)


def test_a_stranger_that_was_not_told() -> None:
    """Only a counter and one line of the log change."""
    link, nodes = cluster()
    for _ in range(10):
        nodes[0].core.reply(meeting(0, b"\0" * 7 + b"\1"), now_ms=link.now_ms)
    link.settle(nodes[0])
    assert same(nodes)
    assert nodes[0].core.counters["cluster_id_refused"] == 10
    assert len(nodes[0].complaints) == 1


def test_sealed_nothing_of_this_is_heard() -> None:
    """With keys, each of these packets and requests is dropped and counted, and nothing changes."""
    link = Link()
    nodes = link.cluster(4, sealed=True)
    for node in nodes:
        node.core.tree.publish(f"nodes/{node.me.name}")
    assert link.run(10_000, lambda: same(nodes))
    own = [node.core.members.own for node in nodes]
    plain = Envelope("c", nodes[0].envelope.cluster_id)
    parts = [*BRANCHES.values(), *(record(nodes[1], **what) for what in STATEMENTS.values())]
    parts.append(record(nodes[1], address=STRANGER, epoch=FAR))
    lies = [*(messages.gossip(member_id("liar")) + part for part in parts), *FROM_STRANGERS.values()]
    for node in nodes:
        before = node.core.counters["dropped_not_sealed"]
        for message in lies:
            packet = plain.wrap(message)
            node.core.receive(packet, STRANGER, now_ms=link.now_ms)
            assert node.core.reply(packet, now_ms=link.now_ms) is None
        assert not node.core.take()
        assert node.core.counters["dropped_not_sealed"] == before + 2 * len(lies)
        assert node.core.reply(meeting(messages.TOLD, b"\0" * 8), now_ms=link.now_ms) is None
    link.run(60_000)
    assert same(nodes)
    assert [node.core.members.own for node in nodes] == own
