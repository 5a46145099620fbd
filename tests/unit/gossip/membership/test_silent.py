"""A silent node, whose epoch is not stored yet, hears of all members and stays unknown to them."""

from __future__ import annotations

import pytest

from gossipkv.address import Address
from gossipkv.gossip.member import Member, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Who
from tests.unit.gossip.links import Link, Node, all_alive, no_id

SECOND_MS = 1000
STRANGER = Address("10.9.9.9", 9)


def view(node: Node, name: str) -> tuple[str, int] | None:
    """Return the state and epoch under which a node knows a name."""
    member = node.core.members.get(member_id(name))
    return None if member is None else (member.state.name, member.epoch)


def watched(link: Link, silent: Node) -> list[bytes]:
    """Collect the messages of all requests from a silent node; fail at once on a datagram from it."""
    asked: list[bytes] = []
    ask, send = link._ask, link._send

    def watched_ask(asker: Node, effect) -> None:
        if asker is silent and asker.core.silent:
            message = asker.envelope.unwrap(effect.request)
            assert message[0] == messages.SYNC, message
            asked.append(message)
        ask(asker, effect)

    def watched_send(source: Address, to: Address, packet: bytes) -> None:
        assert source != silent.address or not silent.core.silent, packet
        send(source, to, packet)

    link._ask, link._send = watched_ask, watched_send
    return asked


def restarted_silently(link: Link, nodes: list[Node], *, epoch: int = 50) -> Node:
    """Restart the last of these nodes on a disk that refuses writes."""
    old = nodes[-1]
    link.kill(old)
    silent = link.node(old.me.name, port=old.address.port, uuid=old.me.uuid, epoch=epoch, silent=True)
    asked = watched(link, silent)
    link.start(silent, remembered=tuple(node.address for node in nodes[:-1]))
    silent.asked = asked
    return silent


def speak(link: Link, silent: Node) -> None:
    silent.core.speak(now_ms=link.now_ms)
    link.settle(silent)


def test_a_silent_node_hears_and_is_not_heard_of():
    """Others find the node's last life dead; the node sees members live, come and die, and stays hidden."""
    link = Link()
    nodes = link.cluster(5)
    silent = restarted_silently(link, nodes)
    assert link.run(60 * SECOND_MS, lambda: all(view(node, "n04") == ("DEAD", 1) for node in nodes[:4]))
    newcomer = link.start(link.node("new"), nodes[0])
    link.kill(nodes[3])
    assert link.run(120 * SECOND_MS, lambda: view(silent, "n03") == ("DEAD", 1))
    link.run(20 * SECOND_MS)
    assert view(silent, "new") == ("ALIVE", 1)
    assert [view(silent, f"n0{i}") for i in range(3)] == [("ALIVE", 1)] * 3
    assert [view(node, "n04") for node in [*nodes[:3], newcomer]] == [("DEAD", 1)] * 4
    assert len(silent.asked) > 10
    for message in silent.asked:
        parts = messages.read_parts(message, messages.SYNC_BYTES)
        assert not any(isinstance(part, Member) for part in parts), message
    assert silent.sent == 0
    assert silent.stores == []


def test_it_speaks_in_a_higher_epoch():
    """After the epoch is stored, all nodes see the node alive in that epoch, and never before."""
    link = Link()
    nodes = link.cluster(5)
    silent = restarted_silently(link, nodes)
    link.run(60 * SECOND_MS)
    lives = [(one.member.state.name, one.member.epoch) for node in nodes[:4] for one in node.changes
             if one.member.name == "n04"][4:]  # fmt: skip
    assert ("ALIVE", 50) not in lives
    speak(link, silent)
    assert link.run(5 * SECOND_MS, lambda: all_alive([*nodes[:4], silent]))
    assert {view(node, "n04") for node in nodes[:4]} == {("ALIVE", 50)}


def test_it_probes_when_it_speaks():
    """The node finds a death by its own probes."""
    link = Link()
    nodes = link.cluster(2)
    silent = restarted_silently(link, nodes)
    link.run(20 * SECOND_MS)
    speak(link, silent)
    link.run(5 * SECOND_MS)
    link.kill(nodes[0])
    assert link.run(60 * SECOND_MS, lambda: view(silent, "n00") == ("DEAD", 1))


def test_it_answers_nothing():
    """A silent node answers no PING, WHO or SYNC, by datagram or request, and relays nothing."""
    link = Link()
    nodes = link.cluster(3)
    silent = restarted_silently(link, nodes)
    own = silent.core.members.own
    sender = member_id(nodes[0].me.name)
    ping = bytes((messages.PING,)) + sender + b"seqn" + own.id + bytes(8)
    who = messages.who(messages.WHO, own.id, Who(1, b"another uuid----", 7, 1 << 40))
    relay = messages.ping_request(sender, 1, sender, nodes[0].address)
    sync = messages.sync(sender, bytes(8), 0) + messages.digest(bytes(16), b"\xff" * 16, ())
    for message in (ping, who, relay, sync):
        packet = silent.envelope.wrap(message)
        for source in (nodes[0].address, STRANGER):
            silent.core.receive(packet, source, now_ms=link.now_ms)
            assert silent.core.take() == [], message
        assert silent.core.reply(packet, now_ms=link.now_ms) is None, message
        silent.core.take()
    speak(link, silent)
    assert silent.core.reply(silent.envelope.wrap(ping), now_ms=link.now_ms) is not None
    assert silent.core.reply(silent.envelope.wrap(who), now_ms=link.now_ms) is not None


def test_it_publishes_nothing_and_reads_what_others_do():
    """Keys that a node publishes while silent appear when it speaks."""
    link = Link()
    nodes = link.cluster(3)
    nodes[0].core.tree.publish("a/b", b"theirs")
    link.settle(nodes[0])
    silent = restarted_silently(link, nodes)
    silent.core.tree.publish("a/c", b"mine")
    link.settle(silent)
    link.run(60 * SECOND_MS)
    assert "b" in silent.core.tree.children("a", all=False)
    assert [node.core.tree.children("a", all=True) for node in nodes[:2]] == [["b"], ["b"]]
    speak(link, silent)
    link.run(5 * SECOND_MS)
    assert [node.core.tree.children("a", all=False) for node in nodes[:2]] == [["b", "c"], ["b", "c"]]


def test_it_leaves_without_a_word():
    """An unknown node does not announce its departure."""
    link = Link()
    nodes = link.cluster(3)
    silent = restarted_silently(link, nodes)
    link.run(SECOND_MS)
    silent.core.leave(now_ms=link.now_ms)
    link.settle(silent)
    link.run(60 * SECOND_MS)
    assert [view(node, "n02") for node in nodes[:2]] == [("DEAD", 1)] * 2


@pytest.mark.parametrize("joins", [False, True])
def test_alone_it_waits_as_well(joins):
    """A node without an answering peer is announced when it speaks, and not before."""
    link = Link()
    silent = link.node("only", silent=True)
    link.start(silent, *([STRANGER] if joins else []))
    link.run(60 * SECOND_MS)
    assert silent.sent == 0
    speak(link, silent)
    other = link.start(link.node("other"), silent)
    assert link.run(15 * SECOND_MS, lambda: all_alive([silent, other]))


def test_a_cluster_id_is_taken_when_it_can_be_kept():
    """At its first start too, the cluster id waits to be stored, and the node stays silent meanwhile."""
    link = Link()
    first = link.start(link.node("first"))
    silent = no_id(link, "new", silent=True)
    link.store_ms = 30 * SECOND_MS
    link.start(silent, first)
    link.run(20 * SECOND_MS)
    assert view(first, "new") is None
    link.run(20 * SECOND_MS)
    speak(link, silent)
    assert link.run(15 * SECOND_MS, lambda: all_alive([first, silent]))
