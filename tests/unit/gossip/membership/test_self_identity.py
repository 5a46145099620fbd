"""A node keeps its name through restarts, losses, moves, copies and double claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipkv.address import Address
from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, Member, MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import Link, Node, all_alive

SECOND_MS = 1000


def again(link: Link, node: Node, *, epoch: int, port: int | None = None, uuid: bytes | None = None) -> Node:
    port = node.address.port if port is None else port
    return link.node(node.me.name, epoch=epoch, port=port, uuid=uuid or node.me.uuid)


def epochs(nodes: list[Node], name: str) -> set[tuple[str, int, Address]]:
    known = [node.core.members.get(member_id(name)) for node in nodes]
    return {(one.state.name, one.epoch, one.address) for one in known if one is not None}


def test_restarted_at_once_at_the_same_address():
    """After a kill and a start within a second there is one member of the new epoch, never dead."""
    link = Link()
    nodes = link.cluster(6)
    link.kill(nodes[5])
    link.run(500)
    newer = link.start(again(link, nodes[5], epoch=2), nodes[0])
    assert link.run(2 * SECOND_MS, lambda: epochs(nodes[:5], "n05") == {("ALIVE", 2, newer.address)})
    assert newer.core.members.own.epoch == 2
    link.run(30 * SECOND_MS)
    assert all_alive([*nodes[:5], newer])


def test_restarted_at_once_at_another_address():
    """The old address does not answer, so statements about it concern this node's own past."""
    link = Link()
    nodes = link.cluster(6)
    link.kill(nodes[5])
    link.run(200)
    newer = link.start(again(link, nodes[5], epoch=2, port=9999), nodes[0])
    assert link.run(3 * SECOND_MS, lambda: epochs(nodes[:5], "n05") == {("ALIVE", 2, newer.address)})
    assert newer.stopped is None


def test_restarted_where_the_old_address_is_silent():
    """An old address that swallows everything is asked twice, then taken for the past."""
    link = Link()
    nodes = link.cluster(6)
    link.freeze(nodes[5])
    newer = link.start(again(link, nodes[5], epoch=2, port=9999), nodes[0])
    assert link.run(5 * SECOND_MS, lambda: epochs(nodes[:5], "n05") == {("ALIVE", 2, newer.address)})


def lost(link: Link, nodes: list[Node], state: MemberState) -> Node:
    """Return a node that the others know in this state, and that is gone."""
    old = link.start(link.node("x", epoch=9, port=9000), nodes[0])
    link.run(2 * SECOND_MS)
    if state is MemberState.LEFT:
        old.core.leave(now_ms=link.now_ms)
        link.settle(old)
        link.run(SECOND_MS)
    link.kill(old)
    if state is MemberState.DEAD:
        link.run(40 * SECOND_MS)
    assert epochs(nodes, "x") == {(state.name, 9, old.address)}
    return old


@pytest.mark.parametrize("state", [MemberState.ALIVE, MemberState.DEAD, MemberState.LEFT])
@pytest.mark.parametrize(("name", "epoch"), [("x", 500), ("x", 2), ("y", 500), ("y", 2)])
def test_a_lost_data_directory_whose_uuid_comes_from_a_certificate(state, name, epoch):
    """Whatever its name and clock, the node stops, and no member hears of it."""
    link = Link()
    nodes = link.cluster(4)
    old = lost(link, nodes, state)
    before = epochs(nodes, "x")
    newer = link.start(
        link.node(name, epoch=epoch, port=9001, uuid=old.me.uuid, cluster_id=NO_CLUSTER, is_first=True), nodes[2]
    )
    assert link.run(3 * SECOND_MS, lambda: newer.stopped is not None)
    assert newer.stopped.forget
    assert f"the node {old.me.uuid.hex()} was in this cluster before, as 'x' at {old.address}" in str(
        newer.stopped.error
    )
    link.run(SECOND_MS)
    assert (epochs(nodes, "x"), epochs(nodes, "y")) == (before, set())


def test_a_first_start_with_a_uuid_that_nobody_has_had():
    """The node joins, and later statements about it in any epoch are its own."""
    link = Link()
    nodes = link.cluster(4)
    first = {"cluster_id": NO_CLUSTER, "is_first": True}
    one = link.start(link.node("x", uuid=b"another uuid----", **first), nodes[0])
    link.run(5 * SECOND_MS)
    one.core._identity.outlive(1)
    link.settle(one)
    link.run(10 * SECOND_MS)
    assert (one.stopped, one.core.members.own.epoch) == (None, 2)
    assert epochs(nodes, "x") == {("ALIVE", 2, one.address)}


@pytest.mark.parametrize("state", [MemberState.ALIVE, MemberState.DEAD, MemberState.LEFT])
def test_a_lost_data_directory(state):
    """A new uuid and epoch 1 under a name known with epoch 9: the node takes 10, and stores it first."""
    link = Link()
    nodes = link.cluster(5)
    old = lost(link, nodes, state)
    newer = link.start(again(link, old, epoch=1, uuid=b"another uuid----"), nodes[0])
    assert link.run(3 * SECOND_MS, lambda: epochs(nodes, "x") == {("ALIVE", 10, old.address)})
    assert [store.epoch for store in newer.stores] == [10]
    assert all(node.core.members.get(member_id("x")).uuid == b"another uuid----" for node in nodes)


def test_a_new_epoch_is_kept_before_it_is_used():
    link = Link()
    nodes = link.cluster(3)
    old = link.start(link.node("x", epoch=9, port=9000), nodes[0])
    link.run(2 * SECOND_MS)
    link.kill(old)
    link.store_ms = 5000
    link.start(again(link, old, epoch=1), nodes[0])
    link.run(3 * SECOND_MS)
    assert {epoch for _, epoch, _ in epochs(nodes, "x")} == {9}
    assert link.run(4 * SECOND_MS, lambda: epochs(nodes, "x") == {("ALIVE", 10, old.address)})


def test_a_copied_data_directory():
    """A second node of a running name and uuid stops and names both addresses; no other member notices."""
    link = Link()
    nodes = link.cluster(6)
    link.run(5 * SECOND_MS)
    copy = link.start(again(link, nodes[5], epoch=2, port=9999), nodes[0])
    assert link.run(2 * SECOND_MS, lambda: copy.stopped is not None)
    text = str(copy.stopped.error)
    assert "n05" in text
    assert str(copy.address) in text
    assert str(nodes[5].address) in text
    assert epochs(nodes, "n05") == {("ALIVE", 1, nodes[5].address)}
    assert nodes[5].stopped is None


def test_a_question_that_is_lost_is_asked_again():
    """A copy whose first question is lost asks once more before it takes the name, and no member sees the copy."""
    link = Link()
    nodes = link.cluster(6)
    link.run(5 * SECOND_MS)
    first = nodes[5]
    copy = again(link, first, epoch=2, port=9999)
    link.cut = lambda source, to: {source, to} == {copy.address, first.address}
    started_ms = link.now_ms
    link.start(copy, nodes[0])
    link.at(LAN.probe_interval_ms, lambda: setattr(link, "cut", lambda source, to: False))
    while copy.stopped is None and link.now_ms < started_ms + 5 * SECOND_MS:
        link.run(10)
        assert epochs(nodes, "n05") == {("ALIVE", 1, first.address)}
    assert copy.stopped is not None
    # The first question waits for its whole time; the second is answered at once.
    asked_again_ms = LAN.probe_interval_ms + LAN.probe_timeout_ms
    assert asked_again_ms <= link.now_ms - started_ms <= asked_again_ms + 100


def test_nothing_of_a_copy_is_heard():
    """Keys of a second node of the name stay invisible until the conflict is settled; the first node's keys remain."""
    link = Link()
    nodes = link.cluster(4)
    nodes[3].core.tree.publish("who", b"the first")
    link.settle(nodes[3])
    link.run(5 * SECOND_MS)
    copy = again(link, nodes[3], epoch=2, port=9999)
    copy.core.tree.publish("who", b"the copy")
    seen = set()
    link.start(copy, nodes[0])
    for _ in range(100):
        link.run(50)
        for node in nodes:
            seen |= {entry.value for entry in node.core.tree.entries("", now_ms=link.now_ms)}
            seen.add(len(node.core.tree.children("")))
    assert copy.stopped is not None
    assert seen == {b"the first", 1}


def test_what_was_published_before_it_was_settled_is_told_then():
    """A newcomer that first has to take a higher epoch publishes under that epoch."""
    link = Link()
    nodes = link.cluster(4)
    link.store_ms = 700
    old = link.start(link.node("x", epoch=9, port=9000), nodes[0])
    link.run(2 * SECOND_MS)
    link.kill(old)
    newer = again(link, old, epoch=1, uuid=b"another uuid----")
    newer.core.tree.publish("key", b"value")
    link.start(newer, nodes[0])
    assert link.run(3 * SECOND_MS, lambda: all(node.core.tree.children("") == ["key"] for node in nodes))
    assert {epoch for _, epoch, _ in epochs(nodes, "x")} == {10}


def test_a_name_given_twice_at_the_same_moment():
    """Two new nodes of one name join at once through different nodes: exactly one goes on."""
    link = Link()
    nodes = link.cluster(6)
    one = link.start(link.node("x", port=9001, uuid=b"1" * 16), nodes[0])
    two = link.start(link.node("x", port=9002, uuid=b"2" * 16), nodes[3])
    assert link.run(20 * SECOND_MS, lambda: (one.stopped is None) != (two.stopped is None))
    left = two if one.stopped else one
    assert link.run(10 * SECOND_MS, lambda: {where for _, _, where in epochs(nodes, "x")} == {left.address})
    link.run(30 * SECOND_MS)
    assert left.stopped is None
    assert all_alive([*nodes, left])


@pytest.mark.parametrize("connect_ms", [0, 10, 40])
@pytest.mark.parametrize("uuids", [(b"1" * 16, b"1" * 16), (b"1" * 16, b"2" * 16), (b"2" * 16, b"1" * 16)])
def test_two_of_a_name_that_ask_each_other(uuids, connect_ms):
    """Two nodes of one name that ask each other at the same time: exactly one stops."""
    where = Address("10.0.0.1", 9001), Address("10.0.0.1", 9002)
    for later_ms in range(100):
        link = Link(later_ms, delay_ms=20)
        link.connect_ms = connect_ms
        one = link.start(link.node("x", port=9001, uuid=uuids[0], epoch=5), where[1])
        link.run(later_ms)
        two = link.start(link.node("x", port=9002, uuid=uuids[1], epoch=5), where[0])
        link.run(30 * SECOND_MS)
        assert (one.stopped is None) != (two.stopped is None), later_ms


def test_told_to_join_itself():
    """A seed address that reaches the node itself stops no node."""
    link = Link()
    node = link.start(link.node("a"))
    link.nodes[Address("127.0.0.1", 1)] = node  # The same process under another address.
    restarted = link.node("a", epoch=2, port=node.address.port)
    link.nodes[Address("127.0.0.1", 1)] = restarted
    link.start(restarted, Address("127.0.0.1", 1))
    link.run(30 * SECOND_MS)
    assert restarted.stopped is None
    assert restarted.core.members.own.epoch <= 3
    assert restarted.states() == {"a": "ALIVE"}


def test_its_own_voice_is_nobody():
    """A node that hears only itself is isolated, and stays so."""
    link = Link()
    other = link.start(link.node("a"))
    node = link.nodes[Address("127.0.0.1", 1)] = link.node("b")
    link.start(node, other, Address("127.0.0.1", 1))
    link.run(5 * SECOND_MS)
    assert all_alive([node, other])
    link.kill(other)
    link.run(5 * SECOND_MS)
    for _ in range(300):
        link.run(100)
        assert node.core.isolated(now_ms=link.now_ms)


def tell(link: Link, node: Node, part: bytes) -> None:
    head = messages.gossip(member_id("nobody"))
    node.core.receive(node.envelope.wrap(head + part), Address("10.9.9.9", 1), now_ms=link.now_ms)
    link.settle(node)


@pytest.mark.parametrize("state", [MemberState.SUSPECT, MemberState.DEAD])
@pytest.mark.parametrize("incarnation", [0, 5])
def test_refuting(state, incarnation):
    """A statement about a live node is refuted with a higher incarnation within the epoch."""
    link = Link()
    nodes = link.cluster(4)
    own = nodes[1].core.members.own
    tell(link, nodes[0], messages.verdict(messages.MemberVerdict(own.id, state, incarnation, own.epoch, b"accuser-")))
    assert link.run(3 * SECOND_MS, lambda: nodes[1].core.members.own.incarnation == incarnation + 1)
    assert link.run(3 * SECOND_MS, lambda: all_alive(nodes))
    assert nodes[1].core.members.own.epoch == own.epoch


def test_being_suspected_is_a_reason_to_doubt_oneself():
    """A node that has to refute waits longer before it accuses other members."""
    link = Link()
    node = link.cluster(3)[1]
    own = node.core.members.own
    tell(link, node, messages.verdict(messages.MemberVerdict(own.id, MemberState.SUSPECT, 0, own.epoch, b"accuser-")))
    assert node.core._detector._awareness.score == 1


def test_only_a_node_itself_raises_its_incarnation():
    """No node knows a higher rank of a member than the member's own."""
    link = Link()
    nodes = link.cluster(6)
    for _ in range(5):
        link.freeze(nodes[2])
        link.run(5 * SECOND_MS)
        link.thaw(nodes[2])
        link.run(5 * SECOND_MS)
        own = nodes[2].core.members.own
        for node in nodes:
            assert node.core.members.get(own.id).rank <= own.rank


def test_left_is_not_refuted_by_the_one_who_left():
    """After leaving, a node refutes no statement about itself."""
    link = Link()
    nodes = link.cluster(4)
    nodes[1].core.leave(now_ms=link.now_ms)
    own = nodes[1].core.members.own
    tell(link, nodes[1], messages.verdict(messages.MemberVerdict(own.id, MemberState.DEAD, 9, own.epoch, b"accuser-")))
    tell(link, nodes[1], messages.record(own._replace(incarnation=4, state=MemberState.SUSPECT)))
    assert nodes[1].core.members.own == own


def test_left_by_mistake():
    """serf#359: a live node that is said to have left takes a new epoch, since LEFT ends an epoch."""
    link = Link()
    nodes = link.cluster(4)
    own = nodes[1].core.members.own
    tell(link, nodes[0], messages.verdict(messages.MemberVerdict(own.id, MemberState.LEFT, 0, own.epoch, own.id)))
    assert link.run(5 * SECOND_MS, lambda: epochs(nodes, "n01") == {("ALIVE", own.epoch + 1, own.address)})


def test_the_last_incarnation():
    """At the end of the counter a new epoch begins it anew."""
    link = Link()
    nodes = link.cluster(3)
    own = nodes[1].core.members.own
    said = messages.MemberVerdict(own.id, MemberState.SUSPECT, MAX_INCARNATION, own.epoch, b"accuser-")
    tell(link, nodes[1], messages.verdict(said))
    assert link.run(SECOND_MS, lambda: nodes[1].core.members.own.epoch == own.epoch + 1)


def test_the_last_epoch():
    """The highest epoch can have no successor: the mistake is counted, and nothing breaks."""
    link = Link()
    nodes = link.cluster(3)
    own = nodes[1].core.members.own
    tell(link, nodes[1], messages.record(own._replace(epoch=MAX_EPOCH)))
    link.run(SECOND_MS)
    assert nodes[1].core.counters["epoch_at_its_end"] == 1
    assert nodes[1].core.members.own.epoch == own.epoch


def test_claims_of_one_rank_are_settled_by_something():
    """Every node believes the same of two records of one rank and different addresses, in any order."""
    link = Link()
    known = []
    for order in (False, True):
        node = link.start(link.node(f"n{order}"))
        one = Member(member_id("x"), "x", b"1" * 16, Address("10.0.0.7", 1), 3, 0, MemberState.ALIVE)
        two = replace_address(one, b"2" * 16, Address("10.0.0.6", 1))
        for record in (two, one) if order else (one, two):
            tell(link, node, messages.record(record))
        known.append(node.core.members.get(one.id))
    assert known[0] == known[1]


def replace_address(record: Member, uuid: bytes, address: Address) -> Member:
    return record._replace(uuid=uuid, address=address)


def test_a_stranger_that_asks_who_is_told_nothing():
    """WHO is answered only to a node of the same name."""
    link = Link()
    node = link.start(link.node("a"))
    asked = messages.Who(1, b"u" * 16, 1, 0)
    assert (
        node.core.reply(node.envelope.wrap(messages.who(messages.WHO, member_id("b"), asked)), now_ms=link.now_ms)
        is None
    )
    assert node.core.counters["not_for_me"] == 1
    reply = node.core.reply(node.envelope.wrap(messages.who(messages.WHO, member_id("a"), asked)), now_ms=link.now_ms)
    me = messages.read_who(node.envelope.unwrap(reply))
    assert (me.sequence, me.uuid, me.epoch) == (1, node.me.uuid, 1)


def test_lifeguard_off_has_no_buddy():
    """Plain SWIM, for comparison only, sends a suspected member no note on its pings."""
    plain = replace(LAN, lifeguard=False)
    link = Link()
    nodes = link.cluster(4, profile=plain)
    peer = nodes[0].core.members.peers[nodes[1].core.members.own.id]
    nodes[0].core._beliefs.unanswered(nodes[1].core.members.own.id, now_ms=link.now_ms)
    nodes[0].core._rumours.remove(nodes[1].core.members.own.id)
    assert len(nodes[0].core._spreading.laden_for(peer, b"head")) == 4


@pytest.mark.parametrize("leaves_first", [False, True])
def test_who_leaves_goes_on_leaving(leaves_first):
    """A node that hears of a later epoch of its name while leaving has left in that epoch too."""
    link = Link(3)
    link.store_ms = 400
    nodes = link.cluster(4)
    leaver, others = nodes[1], [nodes[0], *nodes[2:]]
    leaver.core.tree.publish("k/b")
    link.settle(leaver)
    link.run(3 * SECOND_MS)
    own = leaver.core.members.own

    def leave():
        leaver.core.leave(now_ms=link.now_ms)
        link.settle(leaver)

    if leaves_first:
        leave()
    tell(link, leaver, messages.record(own._replace(epoch=own.epoch + 5)))
    link.run(200)
    if not leaves_first:
        leave()
    link.run(SECOND_MS)
    assert leaver.core.members.own.state is MemberState.LEFT
    link.kill(leaver)
    for _ in range(15):
        link.run(SECOND_MS)
        assert [node.states()["n01"] for node in others] == ["LEFT"] * 3
        assert not any(node.core.tree.children("k") for node in others)
