"""One packet that fits in every byte and lies, told to a cluster without keys: what it does is over soon."""

from __future__ import annotations

import pytest

from gossipkv.gossip import packets
from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, Member, State, member_id
from gossipkv.gossip.packets import Change, Delta, Head, Verdict
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
    message = packets.gossip(member_id("liar")) + b"".join(parts)
    node.core.receive(node.envelope.wrap(message), node.address, now_ms=link.now_ms)
    link.settle(node)


def delta(**numbers: object) -> bytes:
    """A DELTA of a branch that its owner never had."""
    change = (Change(FAR, "nodes/invented", b""),)
    invented = Delta(LIED_ABOUT, epoch=1, floor=0, since=1, reach=FAR, target=FAR, reset=False, changes=change)
    return packets.delta(invented._replace(**numbers))


def record(node: Node, **what: object) -> bytes:
    """A RECORD of a member that is not so."""
    return packets.record(node.core.members.own._replace(**what))


BRANCHES = {
    "versions_to_come": delta(),
    "a_reset": delta(reset=True, since=0, floor=1 << 39),
    "staged": delta(target=FAR + 1),
    "the_next_epoch": delta(epoch=2),
    "a_far_epoch": delta(epoch=FAR),
    "no_path": delta(changes=(Change(FAR, "//", b""),)),
    "a_head": packets.head(Head(LIED_ABOUT, 1, FAR)),
    "a_head_of_a_far_epoch": packets.head(Head(LIED_ABOUT, FAR, FAR)),
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
    lie(link, nodes[0], packets.verdict(Verdict(LIED_ABOUT, state, incarnation, 1, member_id("liar"))))
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
    lie(link, nodes[0], packets.record(ghost))
    expected = {node.me.name: "ALIVE" for node in nodes} | {"ghost": "DEAD"}
    assert link.run(35_000, lambda: all(node.states() == expected for node in nodes))
