"""Nodes join by given or remembered addresses, and cluster ids and names that meet are resolved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipkv.address import Address
from gossipkv.gossip.member import member_id
from gossipkv.gossip.membership.joining import MAX_LOST, MAX_REFUSED
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import Link, all_alive, no_id

SECOND_MS = 1000


def ids(nodes):
    return {node.envelope.cluster_id for node in nodes}


def test_the_id_is_kept_before_it_is_used():
    """No packet carries a drawn or taken cluster id before the disk has it."""
    link = Link()
    link.store_ms = 2000
    first = link.start(no_id(link, "a"))
    link.run(1500)
    assert ids([first]) == {NO_CLUSTER}
    link.run(SECOND_MS)
    second = link.start(no_id(link, "b"), first)
    link.run(1500)
    assert ids([second]) == {NO_CLUSTER}
    assert second.states() == {"b": "ALIVE"}
    assert link.run(2 * SECOND_MS, lambda: all_alive([first, second]))
    assert ids([first, second]) == {first.stores[0].cluster_id}


def test_a_kept_id_is_not_overwritten_by_a_kept_epoch():
    """The later of two concurrent writes contains both."""
    link = Link()
    nodes = link.cluster(3)
    old = link.start(link.node("x", epoch=9, port=9000), nodes[0])
    link.run(2 * SECOND_MS)
    link.kill(old)
    link.store_ms = 500
    newer = link.start(link.node("x", port=9000, cluster_id=NO_CLUSTER), nodes[0])
    assert link.run(10 * SECOND_MS, lambda: all_alive([*nodes, newer]))
    assert (newer.stores[-1].epoch, newer.stores[-1].cluster_id) == (10, nodes[0].envelope.cluster_id)


def test_an_address_where_nobody_answers_is_told_of_once():
    """A seed is reported after a few attempts and when its member is lost; remembered addresses are not."""
    link = Link()
    nobody, gone = Address("10.0.0.1", 9), Address("10.0.0.1", 10)
    node = link.start(no_id(link, "a"), nobody, remembered=(gone,))
    link.run(1 * SECOND_MS)
    assert not node.complaints
    link.run(120 * SECOND_MS)
    (complaint,) = node.complaints
    assert complaint.error.details["address"] == str(nobody)
    found = link.start(link.node("b", port=9, cluster_id=NO_CLUSTER))
    assert link.run(30 * SECOND_MS, lambda: all_alive([node, found]))
    link.kill(found)
    link.run(120 * SECOND_MS)
    assert len(node.complaints) == 2


def test_a_name_that_stands_for_a_remembered_address():
    """The remembered address becomes a seed, which is asked whenever no other member is there."""
    link = Link()
    away = Address("10.0.0.1", 9)
    node = link.start(link.node("a"), remembered=(away,))
    node.core.join([away], now_ms=link.now_ms)
    link.settle(node)
    other = link.start(link.node("b", port=9))
    assert link.run(30 * SECOND_MS, lambda: all_alive([node, other]))
    assert [seed.remembered for seed in node.core._joining._seeds.values()] == [False]


def test_a_name_that_moves_through_many_addresses():
    """Only the latest addresses of the name are asked."""
    link = Link()
    node = link.start(link.node("a"), Address("10.0.0.1", 1))
    for port in range(2, 400):
        node.core.join([Address("10.0.0.1", port)], now_ms=link.now_ms)
        link.settle(node)
    assert list(node.core._joining._seeds) == [Address("10.0.0.1", 399)]
    other = link.start(link.node("b", port=399))
    assert link.run(30 * SECOND_MS, lambda: all_alive([node, other]))


def test_all_told_of_all_at_once():
    """Eight new nodes that know of each other and start at the same moment form one cluster."""
    link = Link()
    nodes = [no_id(link, f"n{i}") for i in range(8)]
    for node in nodes:
        link.start(node, *nodes)
    assert link.run(30 * SECOND_MS, lambda: all_alive(nodes) and len(ids(nodes)) == 1)
    assert ids(nodes) != {NO_CLUSTER}


@pytest.mark.parametrize("seed", range(4))
def test_started_together(seed):
    """Twenty nodes that know the first three and start within a second, in any order, form one cluster."""
    link = Link(seed)
    nodes = [no_id(link, f"n{i:02}") for i in range(20)]
    for i, node in enumerate(nodes):
        link.kill(node)  # The node has not started yet.

        def start(node=node, i=i) -> None:
            link.nodes[node.address] = node
            link.start(node, *nodes[: min(i, 3)])

        link.at(link.random.randrange(1000), start)
    link.run(SECOND_MS)
    assert link.run(15 * SECOND_MS, lambda: all_alive(nodes) and len(ids(nodes)) == 1)


def test_in_a_chain():
    """Nodes that each know their predecessor, the first started last, form one cluster."""
    link = Link()
    nodes = [no_id(link, f"n{i}") for i in range(6)]
    for i in range(5, 0, -1):
        link.start(nodes[i], nodes[i - 1])
        link.run(200)
    link.start(nodes[0])
    assert link.run(40 * SECOND_MS, lambda: all_alive(nodes) and len(ids(nodes)) == 1)


def drawn_by(node):
    """Return the cluster id that the node has drawn and stored; no node draws twice."""
    (drew,) = {store.cluster_id for store in node.stores if store.drew} or {None}
    return drew


@pytest.mark.parametrize("seed", range(10))
def test_one_node_drew_the_id(seed):
    """However nodes know each other and whenever they start, one of them drew the common id."""
    link = Link(seed)
    link.store_ms = link.random.choice((1, 500, 3000))
    nodes = [no_id(link, f"n{i}") for i in range(6)]
    for i, node in enumerate(nodes):
        told = [nodes[i - 1], *link.random.sample(nodes, link.random.randrange(3))]
        link.at(link.random.randrange(4 * SECOND_MS), lambda node=node, told=told: link.start(node, *told))
    link.at(6 * SECOND_MS, lambda: link.start(no_id(link, "lone")))
    link.run(7 * SECOND_MS)
    (lone,) = (node for node in link.nodes.values() if node.me.name == "lone")
    link.run(4 * SECOND_MS)
    assert drawn_by(lone) == lone.envelope.cluster_id != NO_CLUSTER
    lone.core.join([nodes[0].address], now_ms=link.now_ms)
    link.settle(lone)
    nodes = [*nodes, lone]
    assert link.run(60 * SECOND_MS, lambda: all_alive(nodes) and len(ids(nodes)) == 1)
    (cluster_id,) = ids(nodes)
    assert [drawn_by(node) for node in nodes].count(cluster_id) == 1


def test_two_lone_nodes_then_told():
    """An empty cluster takes the id of another empty one when told to join."""
    link = Link()
    first, second = link.start(no_id(link, "a")), link.start(no_id(link, "b"))
    link.run(SECOND_MS)
    assert len(ids([first, second])) == 2
    second.core.join([first.address], now_ms=link.now_ms)
    link.settle(second)
    assert link.run(5 * SECOND_MS, lambda: all_alive([first, second]))
    assert len(ids([first, second])) == 1


def test_two_lone_nodes_told_of_each_other():
    """When both are told at once, both end with the smaller id and change at most once."""
    link = Link()
    first, second = link.start(no_id(link, "a")), link.start(no_id(link, "b"))
    link.run(SECOND_MS)
    smaller = min(ids([first, second]))
    for one, other in ((first, second), (second, first)):
        one.core.join([other.address], now_ms=link.now_ms)
        link.settle(one)
    assert link.run(5 * SECOND_MS, lambda: all_alive([first, second]))
    assert ids([first, second]) == {smaller}
    assert sum(len(node.stores) for node in (first, second)) == 3


def test_a_lone_node_joins_a_cluster_whatever_the_ids():
    """A lone node takes a cluster's id even if its own is smaller."""
    for own in (b"\0" * 7 + b"\1", b"\xff" * 8):
        link = Link()
        nodes = link.cluster(3)
        lone = link.start(link.node("x", cluster_id=own), nodes[0])
        assert link.run(5 * SECOND_MS, lambda: all_alive([*nodes, lone]))  # noqa: B023 - called in this turn
        assert lone.envelope.cluster_id == nodes[0].envelope.cluster_id


def test_two_catalogues():
    """Hazard 20: two clusters with entries of their own stay apart, and both report it."""
    link = Link()
    first = link.start(link.node("a", pinned=True))
    second = link.start(link.node("b", cluster_id=b"another-", pinned=True), first)
    link.run(60 * SECOND_MS)
    assert ids([first, second]) == {first.me.cluster_id, second.me.cluster_id}
    assert (first.states(), second.states()) == ({"a": "ALIVE"}, {"b": "ALIVE"})
    for node in first, second:
        (complaint,) = node.complaints
        for word in b"another-".hex(), first.me.cluster_id.hex(), "`--cluster`", "both have tables":
            assert word in str(complaint.error)
    assert second.core.counters["cluster_id_refused"] >= 3
    assert first.core.counters["cluster_id_refused"] >= 3


def test_a_catalogue_keeps_its_id():
    """A node with entries that is told to join a lone empty node draws that node over to its own id."""
    link = Link()
    first = link.start(link.node("a", cluster_id=b"another-"))
    second = link.start(link.node("b", pinned=True), first)
    assert link.run(10 * SECOND_MS, lambda: all_alive([first, second]))
    assert ids([first, second]) == {second.me.cluster_id}


def pin(link, node):
    node.core.pin()
    link.settle(node)


def test_pinned_while_it_runs():
    """A lone node told to join a cluster would change its id; once pinned, it draws the cluster to its id."""
    link = Link()
    nodes = link.cluster(3)
    lone = link.start(link.node("x", cluster_id=b"another-"))
    link.run(SECOND_MS)
    pin(link, lone)
    link.run(SECOND_MS)
    assert lone.core.pinned
    pin(link, lone)
    assert [store.pinned for store in lone.stores] == [True], "again does nothing"
    lone.core.join([nodes[0].address], now_ms=link.now_ms)
    nodes[0].core.join([lone.address], now_ms=link.now_ms)
    link.settle(lone)
    link.settle(nodes[0])
    assert link.run(120 * SECOND_MS, lambda: nodes[0].envelope.cluster_id == b"another-")
    assert lone.envelope.cluster_id == b"another-"


def test_a_pin_is_kept_before_it_is_said():
    """Until the disk has it, the pin is not announced, but the node already takes no other id."""
    link = Link()
    nodes = link.cluster(2)
    lone = link.start(link.node("x", cluster_id=b"another-"))
    link.store_ms = 5 * SECOND_MS
    pin(link, lone)
    lone.core.join([nodes[0].address], now_ms=link.now_ms)
    link.settle(lone)
    link.run(4 * SECOND_MS)
    assert not lone.core.pinned
    assert not lone.core._joining.as_asked().pinned
    assert [store[:2] for store in lone.stores] == [(1, b"another-")]
    link.run(2 * SECOND_MS)
    assert lone.core.pinned
    assert lone.core._joining.as_asked().pinned
    assert lone.envelope.cluster_id == b"another-"


def test_an_id_on_its_way_comes_before_the_pin():
    """A node that is pinned while an id is being stored keeps that id."""
    link = Link()
    nodes = link.cluster(2)
    lone = link.node("x", cluster_id=b"another-")
    link.store_ms = 2 * SECOND_MS
    link.start(lone, nodes[0])
    assert link.run(SECOND_MS, lambda: bool(lone.stores))
    pin(link, lone)
    link.run(5 * SECOND_MS)
    assert lone.core.pinned
    assert lone.envelope.cluster_id == nodes[0].envelope.cluster_id
    assert [store[1::2] for store in lone.stores] == [(nodes[0].me.cluster_id, pinned) for pinned in (False, True)]


def test_pinned_without_an_id():
    """The first id that the node takes or draws is final."""
    link = Link()
    nodes = link.cluster(2)
    newcomer = no_id(link, "x")
    newcomer.core.pin()
    link.start(newcomer, nodes[0])
    assert link.run(10 * SECOND_MS, lambda: all_alive([*nodes, newcomer]))
    assert newcomer.core.pinned
    other = link.start(link.node("y", cluster_id=b"\0another", pinned=True), newcomer)
    link.run(30 * SECOND_MS)
    assert newcomer.envelope.cluster_id == nodes[0].me.cluster_id
    assert other.envelope.cluster_id == b"\0another"


@pytest.mark.parametrize("seed", range(25))
def test_who_is_pinned_never_moves_again(seed):
    """Whenever a node is pinned, under slow disks and three meeting clusters, it keeps its stored id."""
    link = Link(seed)
    link.store_ms = link.random.choice((1, 500, 3000))
    nodes = [link.node(f"n{i}", cluster_id=bytes([i]) * 8) for i in range(3)]
    for node in nodes:
        link.start(node, *nodes)
    pinned_to = {}
    for node in nodes:
        link.at(link.random.randrange(12 * SECOND_MS), lambda node=node: pin(link, node))

    def look():
        for node in nodes:
            if node.core.pinned:
                assert pinned_to.setdefault(node.me.name, node.envelope.cluster_id) == node.envelope.cluster_id
                assert node.stores[-1].cluster_id == node.envelope.cluster_id
        return False

    link.run(60 * SECOND_MS, look)
    assert len(pinned_to) == 3


def test_a_foreign_cluster_id_is_not_heard():
    """Packets of another cluster with the same name and address are dropped and counted."""
    link = Link()
    nodes = link.cluster(3)
    link.kill(nodes[2])
    stranger = link.start(link.node("n02", cluster_id=b"another-", port=nodes[2].address.port))
    link.run(40 * SECOND_MS)
    assert nodes[0].states() == {"n00": "ALIVE", "n01": "ALIVE", "n02": "DEAD"}
    assert stranger.states() == {"n02": "ALIVE"}
    assert stranger.core.counters["dropped_cluster_id"] > 0


def test_a_remembered_address_is_no_order_to_join():
    """If another cluster now uses a remembered address, this node keeps its id."""
    link = Link()
    other = link.start(link.node("a", cluster_id=b"another-"))
    back = link.start(link.node("b", epoch=2), remembered=(other.address,))
    link.run(60 * SECOND_MS)
    assert ids([other]) == {b"another-"}
    assert ids([back]) == {back.me.cluster_id}
    for node in other, back:
        (complaint,) = node.complaints
        for word in b"another-".hex(), back.me.cluster_id.hex(), "`--cluster`", "`--join`":
            assert word in str(complaint.error)


def test_strangers_ids_fill_no_log():
    """Sixteen of a thousand strange clusters are reported, and all requests are counted."""
    link = Link()
    node = link.start(link.node("a"))
    for _ in range(10):
        for number in range(1, 1001):
            ask = messages.sync(member_id("b"), bytes(8), 0)
            node.core.reply(Envelope("c", number.to_bytes(8, "big")).wrap(ask), now_ms=link.now_ms)
    link.settle(node)
    assert len(node.complaints) == MAX_REFUSED
    assert node.core.counters["cluster_id_refused"] == 10_000


def test_a_wrong_cluster_name():
    """Serf's accidental merge: a node of another cluster name is refused with both names and never becomes a member."""
    link = Link()
    first = link.start(link.node("a", cluster="production"))
    second = link.start(link.node("b", cluster="staging"), first)
    link.run(60 * SECOND_MS)
    assert (first.states(), second.states()) == ({"a": "ALIVE"}, {"b": "ALIVE"})
    (complaint,) = second.complaints
    assert "'production'" in str(complaint.error)
    assert "'staging'" in str(complaint.error)
    assert str(first.address) in str(complaint.error)
    assert first.core.counters["dropped_cluster_name"] > 1


def test_remembered_peers():
    """A node that restarts without a seed finds its cluster by its remembered addresses."""
    link = Link()
    nodes = link.cluster(5)
    link.run(5 * SECOND_MS)
    gone = nodes.pop()
    link.kill(gone)
    assert set(gone.remembered) >= {node.address for node in nodes}
    back = link.start(link.node("n04", epoch=2, port=gone.address.port), remembered=gone.remembered)
    assert link.run(3 * SECOND_MS, lambda: all_alive([*nodes, back]))


def test_all_restarted_at_once():
    """memberlist#311: nodes that restart at once with only remembered addresses see each other again."""
    link = Link()
    nodes = link.cluster(12)
    link.run(5 * SECOND_MS)
    for node in nodes:
        link.kill(node)
    back = []
    for node in nodes:
        back.append(link.node(node.me.name, epoch=2, port=node.address.port))
        link.start(back[-1], remembered=node.remembered)
        link.run(100)
    assert link.run(30 * SECOND_MS, lambda: all_alive(back))


def test_restarted_on_both_sides_of_a_partition():
    """Each side restarted during the partition and has lost the other from its table; still they heal."""
    link = Link()
    nodes = link.cluster(6)
    link.run(5 * SECOND_MS)
    left = {node.address for node in nodes[:3]}
    link.cut = lambda source, to: (source in left) != (to in left)
    link.run(60 * SECOND_MS)
    back = []
    for node in nodes:
        link.kill(node)
    for node in nodes:
        back.append(link.node(node.me.name, epoch=2, port=node.address.port))
        link.start(back[-1], remembered=node.remembered)
    link.run(120 * SECOND_MS)
    for at, node in enumerate(back):  # A second restart: addresses of the first start are still remembered.
        link.kill(node)
        back[at] = link.start(link.node(node.me.name, epoch=3, port=node.address.port), remembered=node.remembered)
    link.run(60 * SECOND_MS)
    assert not all_alive(back)
    link.cut = lambda source, to: False
    assert link.run(35 * SECOND_MS, lambda: all_alive(back))


def test_seeds_are_asked_until_one_is_there():
    """CASSANDRA-150: a seed that comes up late is found; pauses grow up to the reconnect interval."""
    link = Link()
    second = no_id(link, "b")
    link.start(second, Address("10.0.0.1", 9000))
    link.run(60 * SECOND_MS)
    first = link.start(no_id(link, "a", port=9000))
    assert link.run(15 * SECOND_MS, lambda: all_alive([first, second]))


def test_join_is_called_again():
    """A name that resolves late is asked at its address."""
    link = Link()
    first = link.start(no_id(link, "a"))
    second = no_id(link, "b")
    second.core.start(joins=[], remembered=[], lone=False, now_ms=link.now_ms)
    link.settle(second)
    link.run(5 * SECOND_MS)
    assert ids([second]) == {NO_CLUSTER}  # The node was told to join, so it forms no cluster of its own.
    second.core.join([first.address], now_ms=link.now_ms)
    link.settle(second)
    assert link.run(5 * SECOND_MS, lambda: all_alive([first, second]))


def test_a_seed_that_talks_nonsense():
    """Malformed replies are counted, and the seed is asked again."""
    link = Link()
    first = link.start(link.node("a"))
    nonsense = [b"", b"\x47", first.envelope.wrap(b""), first.envelope.wrap(b"\x06"), first.envelope.wrap(b"\x02" * 40)]
    original = first.core.reply
    first.core.reply = lambda request, now_ms: nonsense.pop() if nonsense else original(request, now_ms=now_ms)
    second = link.start(link.node("b"), first)
    assert link.run(60 * SECOND_MS, lambda: all_alive([first, second]))
    assert second.core.counters["bad_reply"] == 5


def test_a_dead_member_that_lost_its_disk_is_fetched():
    """A node without an id whose seed is gone is found by the members that know it as dead."""
    link = Link()
    nodes = link.cluster(3)
    link.kill(nodes[2])
    link.run(40 * SECOND_MS)
    back = no_id(link, "n02", port=nodes[2].address.port, uuid=b"another uuid----")
    link.start(back, Address("10.0.0.1", 1))
    assert link.run(35 * SECOND_MS, lambda: all_alive([nodes[0], nodes[1], back]))
    assert len(ids([nodes[0], back])) == 1


def test_the_dead_are_asked_for_seldom():
    """In a large cluster few members ask a dead address in an interval, over TCP as by datagrams."""
    link = Link()
    nodes = link.cluster(20)
    link.kill(nodes.pop())
    link.run(40 * SECOND_MS)
    asked = []
    original = link._ask

    def ask(asker, effect):
        asked.append(effect.to)
        original(asker, effect)

    link._ask = ask
    link.run(200 * SECOND_MS)
    assert 5 <= len(asked) <= 50  # One request per interval of ten seconds.


def test_a_seed_that_gave_its_id_is_asked_no_more_often(monkeypatch):
    """A node that took its id from a seed and lost the seed asks it once per interval."""
    link = Link()
    seed = link.start(link.node("a"))
    newcomer = link.start(no_id(link, "b"), seed)
    link.run(5 * SECOND_MS)
    assert all_alive([seed, newcomer])
    link.kill(seed)
    link.run(60 * SECOND_MS)
    asked = []
    original = link._ask
    monkeypatch.setattr(link, "_ask", lambda asker, effect: asked.append(effect.to) or original(asker, effect))
    link.run(200 * SECOND_MS)
    assert asked == [seed.address] * len(asked)
    assert 15 <= len(asked) <= 25  # Once in ten seconds.


def test_asked_before_its_own_question_is_answered():
    """A node that is found first hears of itself from others, and does not take that for another life."""
    link = Link()
    nodes = link.cluster(2)
    late = link.node("late")
    link.cut = lambda source, to: late.address in {source, to} and nodes[0].address in {source, to}
    link.start(late, nodes[0])
    caller = link.start(link.node("caller"), late, nodes[1])
    link.run(5 * SECOND_MS)
    link.cut = lambda source, to: False
    assert link.run(60 * SECOND_MS, lambda: all_alive([*nodes, late, caller]))
    link.run(30 * SECOND_MS)
    assert late.core.members.own.epoch == 1
    assert late.core.counters["epochs_renewed"] == 0
    assert late.core.isolated(now_ms=link.now_ms) is False


@pytest.mark.parametrize("restarts", [False, True])
def test_a_partition_longer_than_the_dead_are_remembered(restarts):
    """With no seed left, the addresses of forgotten members are asked, however old they are."""
    link = Link()
    profile = replace(LAN, dead_retention_ms=600_000)
    nodes = link.cluster(6, profile=profile)
    for node in nodes:
        node.core.join((), now_ms=link.now_ms)
    left = {node.address for node in nodes[:3]}
    link.cut = lambda source, to: (source in left) != (to in left)
    link.run(700_000)
    assert all_alive(nodes[:3])
    assert all_alive(nodes[3:])
    if restarts:
        for number, node in enumerate(nodes[:3]):
            link.kill(node)
            again = link.node(node.me.name, epoch=2, port=node.address.port, profile=profile)
            nodes[number] = link.start(again, remembered=node.remembered)
        link.run(1_300_000)
        assert all_alive(nodes[:3])
    link.cut = lambda source, to: False
    assert link.run(120_000, lambda: all_alive(nodes))


def test_who_is_not_found_is_lost():
    """A remembered address without a member is asked rarely once the dead are forgotten, and for ever."""
    link = Link()
    nodes = link.cluster(2, profile=replace(LAN, dead_retention_ms=600_000))
    gone = Address("10.9.9.9", 9)
    asked, ask = [], link._ask
    link._ask = lambda asker, question: (asked.append(question.to), ask(asker, question))
    again = link.start(link.node("again", profile=nodes[0].core._profile), remembered=(gone, nodes[0].address))
    link.run(620_000)
    assert again.core._joining.unseen == [gone]
    before = asked.count(gone)
    assert before > 600_000 / LAN.reconnect_interval_ms
    link.run(3_000_000)
    assert again.core._joining.unseen == [gone]
    assert 70 < asked.count(gone) - before < 130  # A third of the turns, since there are three nodes.
    assert all_alive([*nodes, again])


def test_the_latest_lost_are_kept():
    """The number of lost addresses is limited, and each is kept once."""
    link = Link()
    joining = link.start(link.node("one")).core._joining
    places = [Address("10.9.9.9", port) for port in range(1, 2 * MAX_LOST)]
    for place in [*places, places[-2]]:
        joining.lose(place)
    assert joining.unseen == [*places[-MAX_LOST:-2], places[-1], places[-2]]
