"""One packet that fits in every byte and lies, told to a cluster without keys: what it does is over soon."""

from __future__ import annotations

import pytest

from gossipkv.address import Address
from gossipkv.gossip.effects import Send
from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, Member, State, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Change, Delta, Head, Known, Verdict, Who
from tests.unit.gossip.links import Link, Node, all_alive

LIED_ABOUT = member_id("n01")
FAR = 1 << 40


def cluster(size: int = 4) -> tuple[Link, list[Node]]:
    """Some nodes that know each other and what each publishes."""
    link = Link()
    nodes = link.cluster(size)
    for node in nodes:
        node.core.tree.publish(f"nodes/{node.me.name}")
    assert link.run(10_000, lambda: same(nodes))
    return link, nodes


def same(nodes: list[Node], extra: tuple[str, ...] = ()) -> bool:
    """Whether all are alive to all and show what their owners publish."""
    expected = sorted([*(node.me.name for node in nodes), *extra])
    return all_alive(nodes) and all(node.core.tree.children("nodes") == expected for node in nodes)


def lie(link: Link, node: Node, *parts: bytes) -> None:
    """A packet to one node, by nobody it knows."""
    message = messages.gossip(member_id("liar")) + b"".join(parts)
    node.core.receive(node.envelope.wrap(message), node.address, now_ms=link.now_ms)
    link.settle(node)


def delta(**numbers: object) -> bytes:
    """A DELTA of a branch that its owner never had."""
    change = (Change(FAR, "nodes/invented", b""),)
    invented = Delta(LIED_ABOUT, epoch=1, floor=0, since=1, reach=FAR, target=FAR, reset=False, changes=change)
    return messages.delta(invented._replace(**numbers))


def record(node: Node, **what: object) -> bytes:
    """A RECORD of a member that is not so."""
    return messages.record(node.core.members.own._replace(**what))


TOO_MUCH = tuple(Change(FAR - number, f"nodes/{number}", None) for number in range(1024, 0, -1))

BRANCHES = {
    "versions_to_come": delta(),
    "a_reset": delta(reset=True, since=0, floor=1 << 39),
    "a_piece": delta(target=FAR + 1),
    "more_than_a_branch_may_take": delta(changes=TOO_MUCH),
    "the_next_epoch": delta(epoch=2),
    "a_far_epoch": delta(epoch=FAR),
    "no_path": delta(changes=(Change(FAR, "//", b""),)),
    "a_head": messages.head(Head(LIED_ABOUT, 1, FAR)),
    "a_head_of_a_far_epoch": messages.head(Head(LIED_ABOUT, FAR, FAR)),
}


@pytest.mark.parametrize("part", BRANCHES.values(), ids=BRANCHES)
def test_an_invented_branch_ends(part: bytes) -> None:
    """What its owner publishes afterwards is seen everywhere, and what was invented nowhere."""
    link, nodes = cluster()
    lie(link, nodes[0], part)
    link.run(2000)
    nodes[1].core.tree.publish("nodes/news")
    link.settle(nodes[1])
    assert link.run(35_000, lambda: same(nodes, ("news",))), [node.core.tree.children("nodes") for node in nodes]


@pytest.mark.parametrize("ahead", [1, 1_000_000])
def test_a_transfer_that_was_never_begun_ends(ahead: int) -> None:
    """A piece without the rest is nothing; what the owner publishes then, more than one part of it, arrives."""
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
    "suspected": {"state": State.SUSPECT},
    "dead": {"state": State.DEAD, "incarnation": 5},
    "dead_for_ever": {"state": State.DEAD, "incarnation": MAX_INCARNATION},
    "left": {"state": State.LEFT},
    "left_for_ever": {"state": State.LEFT, "incarnation": MAX_INCARNATION},
    "to_come": {"epoch": FAR},
    "to_come_and_dead": {"epoch": FAR, "state": State.DEAD},
    "another_uuid": {"uuid": b"\xff" * 16},
}


@pytest.mark.parametrize("what", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("hearer", [0, 1], ids=["another", "itself"])
def test_a_lie_about_a_member_is_refuted(what: dict[str, object], hearer: int) -> None:
    """By the member itself, within a few seconds, whoever heard it; its keys are shown again."""
    link, nodes = cluster()
    lie(link, nodes[hearer], record(nodes[1], **what))
    link.run(1000)
    assert link.run(35_000, lambda: same(nodes)), [node.states() for node in nodes]
    assert all(node.stopped is None for node in nodes)


@pytest.mark.parametrize("state", [State.SUSPECT, State.DEAD, State.LEFT])
@pytest.mark.parametrize("incarnation", [0, 7, MAX_INCARNATION])
def test_a_forged_verdict_is_refuted(state: State, incarnation: int) -> None:
    """As a record is."""
    link, nodes = cluster()
    lie(link, nodes[0], messages.verdict(Verdict(LIED_ABOUT, state, incarnation, 1, member_id("liar"))))
    link.run(1000)
    assert link.run(35_000, lambda: same(nodes)), [node.states() for node in nodes]


def test_the_last_epoch_does_no_more_harm_than_it_must() -> None:
    """A name whose epochs were used up by a lie is lost until data directories are made anew; nothing else is."""
    link, nodes = cluster()
    lie(link, nodes[0], record(nodes[1], epoch=MAX_EPOCH, state=State.LEFT))
    link.run(40_000)
    others = [nodes[0], *nodes[2:]]
    assert all(node.states() == {"n00": "ALIVE", "n01": "LEFT", "n02": "ALIVE", "n03": "ALIVE"} for node in others)
    assert all(node.stopped is None for node in nodes)


def test_an_invented_member_dies() -> None:
    """It is probed, suspected, dead, and nothing but a memory; the others never leave each other."""
    link, nodes = cluster()
    ghost = Member(member_id("ghost"), "ghost", bytes(16), nodes[0].address, 1, 0, State.ALIVE)
    lie(link, nodes[0], messages.record(ghost))
    expected = {node.me.name: "ALIVE" for node in nodes} | {"ghost": "DEAD"}
    assert link.run(35_000, lambda: all(node.states() == expected for node in nodes))


# Strangers: packets that may come from anywhere, their source invented

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
    + messages.want([messages.known(Known(member_id("n01"), State.ALIVE, 0, 0, 0, 0))]),
    "head": messages.gossip(member_id("liar")) + messages.head(Head(LIED_ABOUT, 1, FAR)),
    "heads": messages.gossip(member_id("liar"))
    + b"".join(messages.head(Head(number.to_bytes(8, "big"), 1, FAR)) for number in range(200)),
    "head_on_a_ping": messages.ping(member_id("liar"), 1, member_id("n00"), b"\xff" * 8)
    + messages.head(Head(LIED_ABOUT, 1, FAR)),
    "head_on_an_ack": messages.ack(member_id("liar"), 1, b"\xff" * 8) + messages.head(Head(LIED_ABOUT, 1, FAR)),
    "head_of_a_member": messages.gossip(member_id("n01")) + messages.head(Head(LIED_ABOUT, 1, FAR)),
    "gap": messages.gossip(member_id("liar")) + delta(epoch=9),
    "ping_request": messages.ping_request(member_id("liar"), 1, member_id("n01"), ELSEWHERE),
    "ping_request_of_a_member": messages.ping_request(member_id("n01"), 1, member_id("n02"), ELSEWHERE),
    "ping_request_about_a_stranger": messages.ping_request(member_id("n01"), 1, member_id("liar"), ELSEWHERE),
    "who": messages.who(messages.WHO, member_id("n00"), Who(1, bytes(16), 1, 1)),
}


@pytest.mark.parametrize("message", FROM_STRANGERS.values(), ids=FROM_STRANGERS)
def test_a_stranger_draws_hardly_more_than_it_sends(message: bytes) -> None:
    """Whoever invents a source cannot have a node flood it, nor use up what it has to tell its members."""
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
        nodes[0].core.wake(now_ms=link.now_ms)  # A helper that has not heard yet would say so.
        drawn = [one for one in nodes[0].core.take() if isinstance(one, Send) and one.to in {STRANGER, ELSEWHERE}]
        assert sum(len(one.packet) for one in drawn) <= 2 * len(packet)


def test_what_a_stranger_asks_for_is_answered_without_news() -> None:
    """A relay that a stranger asks for brings it a bare ACK; a member that asks about a member hears news as well."""
    link, nodes = cluster(3)
    relay, target = nodes[0], nodes[2].core.members.own
    for sender, at, hears in (("liar", STRANGER, False), ("n01", STRANGER, False), ("n01", nodes[1].address, True)):
        relay.core.tree.publish(f"more/{sender}/{at.port}")
        relay.core.take()
        asked = messages.ping_request(member_id(sender), 7, target.id, target.address)
        relay.core.receive(relay.envelope.wrap(asked), at, now_ms=link.now_ms)
        (ping,) = (one for one in relay.core.take() if isinstance(one, Send))
        assert ping.to == target.address
        assert (len(relay.envelope.unwrap(ping.packet)) > messages.PING_BYTES) is hears
        sequence = relay.envelope.unwrap(ping.packet)[messages.SEQUENCE]
        ack = messages.ack(target.id, int.from_bytes(sequence, "big"), relay.core._exchange.state_hash)
        relay.core.receive(relay.envelope.wrap(ack), target.address, now_ms=link.now_ms)
        (answer,) = (one for one in relay.core.take() if isinstance(one, Send))
        assert answer.to == at
        assert (len(relay.envelope.unwrap(answer.packet)) > messages.ACK_BYTES) is hears


@pytest.mark.parametrize("state", [State.ALIVE, State.DEAD])
def test_an_age_of_all_time(state: State) -> None:
    """What is told on is a little older each time, and still must fit the packet that tells it."""
    link, nodes = cluster(3)
    told = Member(member_id("x"), "x", bytes(16), Address("10.0.0.9", 9), 1, 0, state)
    known = messages.known(Known(told.id, State.ALIVE, 0, 1, 0, (1 << 63) - 1))
    parts = messages.record(told) + messages.digest(told.id, told.id, [known])
    message = messages.sync(member_id("liar"), bytes(8), messages.REPLY) + parts
    nodes[0].core.receive(nodes[0].envelope.wrap(message), nodes[1].address, now_ms=link.now_ms)
    request = nodes[0].core._exchange.request(now_ms=link.now_ms)
    nodes[1].core.reply(nodes[0].envelope.wrap(request), now_ms=link.now_ms)
    assert not nodes[1].core.counters["dropped_malformed"]
