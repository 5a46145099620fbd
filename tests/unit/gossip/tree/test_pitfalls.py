"""Known failures of other trees of this kind, each by its name.

Names are those of issues: of chitchat where only a number stands, of memberlist, Quickwit, Scylla, Sequins otherwise.
"""

from __future__ import annotations

from itertools import pairwise

from gossipkv.gossip.member import MAX_EPOCH, MAX_INCARNATION, MemberState
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import MAX_VARINT_BYTES
from gossipkv.gossip.packets.messages import Delta, KnownMember, MemberDigest, Want
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, chunks, joined
from tests.oracle.branches import History
from tests.unit.gossip.anti_entropy.test_exchange import compare
from tests.unit.gossip.tree.linked import ROOM, Link, Node, member, pair
from tests.unit.gossip.tree.test_tree import ANN, names, publish, tree
from tests.unit.gossip.tree.transfers import MOST, OWNER, deltas, shown, whole


def test_94_an_old_generation_of_a_restarted_node_is_never_forgotten() -> None:
    """And #103, #108: a newer epoch frees its keys and memory at once, and no delta can bring them back."""
    made = tree()
    publish(made, "ann", "k/1", "k/2")
    made.on_member(member("ann", epoch=2))
    assert (made.size_bytes, names(made, "k", hidden=True)) == (0, [])
    assert publish(made, "ann", "k/1", "k/2", "k/3") is DeltaOutcome.NOTHING
    assert made.size_bytes == 0


def test_121_deletes_are_timed_by_the_wrong_clock() -> None:
    """And #122: a tombstone stays, even for a year, until every live member has acknowledged it."""
    link, one, two = pair()
    three = link.node("three")
    one.knows(three)
    one.tree.publish("k/1")
    compare(one, two)
    one.tree.withdraw("k/1")
    compare(one, two)
    for _ in range(12):
        link.pass_time(30 * 86_400_000)
        one.ping(two)
        link.run()
    assert one.tree.has_tombstones
    one.tree.acknowledged(three.id)
    assert not one.tree.has_tombstones


def test_110_a_reset_cut_short_and_a_third_nodes_delta_bring_a_deleted_key_back() -> None:
    """At every size of parts and place of the cut, withdrawn keys stay withdrawn."""
    for size in range(64, 300, 3):
        owner, history = Branch(1), History()
        for number in range(12):
            owner.put(f"k/{number}", b"v")
            history.publish(f"k/{number}", b"v")
        owner.withdraw("k/11")
        history.withdraw("k/11")
        owner.collect(owner.version)
        first = deltas(chunks(OWNER, owner, 3, size))
        assert first[0].reset
        for number in range(0, 11, 2):
            owner.withdraw(f"k/{number}")
            history.withdraw(f"k/{number}")
        owner.collect(owner.version - 1)
        third = Branch(1)
        for delta in whole(chunks(OWNER, owner, 0, 1400)):
            third.apply(delta, MOST)
        for cut in range(len(first)):
            reader = Branch(1)
            since = first[cut - 1].reach if cut else 0
            behind = deltas(chunks(OWNER, third, since, size))
            for delta in [*joined([*first[:cut], *behind]), *whole(chunks(OWNER, third, 0, size))]:
                reader.apply(delta, MOST)
                assert history.wrong(reader.version, shown(reader)) is None
            assert reader.version == owner.version


def test_144_a_transport_that_passes_objects_hides_a_broken_codec() -> None:
    """All tests here go through bytes; and so do the largest numbers that a digest may have."""
    largest = (1 << 7 * MAX_VARINT_BYTES) - 1
    for known in (
        KnownMember(ANN, MemberState.LEFT, MAX_INCARNATION, MAX_EPOCH, largest, largest),
        KnownMember(bytes(8), MemberState.ALIVE, 0, 0, 0, 0),
    ):
        for part in (
            messages.digest(bytes(8), b"\xff" * 8, [messages.known_member(known)]),
            messages.want([messages.known_member(known)]),
        ):
            (read,) = messages.read_parts(part, 0)
            assert isinstance(read, MemberDigest | Want)
            assert read.entries == (known,)


def test_132_a_reset_makes_a_dead_node_look_alive() -> None:
    """And #133: knowledge of a branch says nothing about its owner."""
    made = tree()
    publish(made, "ann", "k/1")
    made.on_member(member("ann", state=MemberState.DEAD))
    reset = Delta(ANN, 1, 5, 0, 9, 9, reset=True, changes=(messages.BranchChange(9, "k/9", b""),))
    assert made.apply(reset) is DeltaOutcome.ADVANCED
    assert made.children("k") == []
    assert names(made, "k", hidden=True) == [("9", "ann", MemberState.DEAD)]


def test_155_a_dead_node_circulates_for_ever_since_nodes_forget_at_different_times() -> None:
    """Near the end of its retention a dead member is not passed on, so the last node to forget teaches no other."""
    link = Link(1)
    nodes = [link.node(f"n{number}") for number in range(4)]
    for number, node in enumerate(nodes):
        node.knows(*(other for other in nodes if other is not node))
        node.hear_record(member("zoe", state=MemberState.DEAD), now_ms=link.now_ms + number * 10_000)
    forgets = [node.members.peers[member("zoe").id].since_ms + LAN.dead_retention_ms for node in nodes]
    link.pass_time(LAN.dead_retention_ms - 100_000)
    for _ in range(400):
        link.pass_time(500)
        for node, at_ms in zip(nodes, forgets, strict=True):
            if at_ms <= link.now_ms and node.members.get(member("zoe").id) is not None:
                node.members.forget(member("zoe").id)
                node.tree.forget(member("zoe").id)
                node.exchange.touch(member("zoe").id, now_ms=link.now_ms)
        one, two = link.random.sample(nodes, 2)
        one.exchange._request(two.me.address, one.exchange.request(now_ms=link.now_ms))
        link.run()
    assert [node.members.get(member("zoe").id) for node in nodes] == [None] * 4


def test_quickwit_6653_a_digest_of_many_nodes_overflows_its_datagram() -> None:
    """Digests and news of a thousand nodes with long histories fit their packets."""
    link = Link()
    one, two = link.node("one"), link.node("two")
    for number in range(1000):
        one.hear_record(member(f"n{number}", epoch=1 << 60, incarnation=1 << 31), now_ms=link.now_ms)
    one.knows(two)
    two.knows(one)
    link.tcp = False
    for _ in range(4):
        compare(one, two)  # The link refuses a message larger than a packet.
    assert len(link.sent) > 10


def test_119_large_owners_starve_small_and_new_ones() -> None:
    """A change of a small owner goes out with the first packet, whatever another owner has published."""
    made = tree()
    for number in range(700):
        made.publish(f"k/{number}")
    for number in range(10):
        publish(made, "ben", f"b/{number}")
    publish(made, "ann", "a/new")
    told = [part for sent in made.rumours.take(300, 8) for part in messages.read_parts(sent, 0)]
    assert any(isinstance(part, Delta) and part.owner == ANN for part in told)


def test_59_packets_are_measured_with_the_wrong_digest() -> None:
    """And #170: answers to any digest fit messages, records with the longest names among them."""
    link = Link(5)
    one, two = link.node("one"), link.node("two")
    for number in range(60):
        one.hear_record(member(f"{number}".ljust(64, "x")), now_ms=link.now_ms)
        if number % 3:
            two.hear_record(member(f"{number}".ljust(64, "x"), epoch=2), now_ms=link.now_ms)
    for number in range(40):
        one.tree.publish(f"{'p' * (number + 1)}/{number}", bytes(number * 9))
    one.knows(two)
    two.knows(one)
    link.settle()
    assert max(link.sent) <= ROOM


def test_176_boundaries_of_floor_and_version() -> None:
    """And #178, #179: every `since` around floor and version, against every reader, yields a true state."""
    owner, history = Branch(1), History()
    for number in range(6):
        owner.put(f"k/{number}", b"")
        history.publish(f"k/{number}", b"")
    for number in (0, 2):
        owner.withdraw(f"k/{number}")
        history.withdraw(f"k/{number}")
    for floor in range(owner.version + 1):
        sender = Branch(1)
        for delta in whole(chunks(OWNER, owner, 0, 1400)):
            sender.apply(delta, MOST)
        sender.collect(floor)
        for since in range(owner.version + 3):
            for version in range(owner.version + 1):
                reader = at_version(history, version)
                for delta in whole(chunks(OWNER, sender, since, 80)):
                    reader.apply(delta, MOST)
                    assert history.wrong(reader.version, shown(reader)) is None
                if since <= version:
                    assert reader.version == owner.version


def at_version(history: History, version: int) -> Branch:
    """Return a reader that has followed an owner up to this version."""
    reader = Branch(1)
    for step in range(1, version + 1):
        before, now = history.states[step - 1], history.states[step]
        for path in before.keys() - now.keys():
            reader.withdraw(path)
        for path in now:
            if before.get(path) != now[path]:
                reader.put(path, now[path])
    return reader


def test_deleted_keys_are_not_notified() -> None:
    """A withdrawal wakes a watcher like a publication."""
    _, one, two = pair()
    one.tree.publish("k/1")
    compare(one, two)
    watch = two.tree.watch("k")
    one.tree.withdraw("k/1")
    compare(one, two)
    assert watch.changed
    assert two.tree.children("k") == []


def test_102_setting_the_same_value_counts_as_a_change() -> None:
    """An unchanged value takes no version, makes no rumour and wakes no watcher."""
    made = tree()
    made.publish("k/1", b"x")
    while made.rumours.take(1000, 8):
        pass
    head = made.head(made.own)
    made.publish("k/1", b"x")
    assert made.head(made.own) == head
    assert not made.rumours


def test_ttl_starts_anew_at_every_hop() -> None:
    """Relayed through ten nodes with a second between, a member never seems fresher than it was."""
    link = Link()
    nodes = [link.node(f"n{number}") for number in range(10)]
    nodes[0].hear_record(member("zoe"), now_ms=link.now_ms)
    heard_ms = link.now_ms
    for one, two in pairwise(nodes):
        link.pass_time(1000)
        two.exchange._request(one.me.address, two.exchange.request(now_ms=link.now_ms))
        link.run()
        assert two.members.peers[member("zoe").id].heard_ms <= heard_ms
    assert nodes[-1].members.peers[member("zoe").id].heard_ms > heard_ms - 11_000


def test_scylla_14991_a_replaced_node_comes_back_as_an_owner() -> None:
    """A replaced epoch is believed from no node and in no form."""
    link, one, two = pair()
    late = link.node("late")
    old = link.node("zoe")
    old.tree.publish("k/old")
    late.hear_record(old.me, now_ms=link.now_ms)
    old.tell(late)
    link.run()
    new = link.node("zoe", epoch=2)
    for node in (one, two):
        node.hear_record(new.me, now_ms=link.now_ms)
    late.knows(one, two)
    one.knows(late)
    two.knows(late)
    late.tell(one)
    late.tree.tell_head(old.id)
    late.tell(two)
    link.run()
    assert (one.view(), two.view()) == ([], [])
    link.settle([one, two, late])
    assert (one.view(), two.view(), late.view()) == ([], [], [])


def test_sequins_flapping_kills() -> None:
    """sequins#157, #158: an owner that flaps a hundred times wakes its readers once, and they see the final state."""
    woken: list[int] = []
    made = tree()
    publish(made, "ann", "k/1", "k/2")
    watch = made.watch("k", lambda: woken.append(1))
    for incarnation in range(100):
        made.on_member(member("ann", incarnation=incarnation, state=MemberState.SUSPECT))
        made.on_member(member("ann", incarnation=incarnation + 1))
    assert woken == [1]
    watch.look()
    assert made.children("k") == ["1", "2"]


def fill(node: Node, keys: int) -> None:
    for number in range(keys):
        node.tree.publish(f"partitions/geo/2026/{number:05}@{node.me.address}", b"x" * 16)


def test_readers_with_a_view_of_an_hour_and_of_a_year() -> None:
    """A frozen node shows its old view with its age and catches up in one exchange."""
    for away_ms in (3_600_000, 365 * 86_400_000):
        link, one, two = pair()
        fill(one, 30)
        compare(one, two)
        two.members.peers[one.id].heard_ms = link.now_ms
        for number in range(30):
            one.tree.withdraw(f"partitions/geo/2026/{number:05}@{one.me.address}")
        one.tree.publish("now", b"")
        one.tree._branches[one.id].collect(1 << 40)
        link.pass_time(away_ms)
        ages = {entry.age_ms for entry in two.tree.entries("partitions/geo/2026", now_ms=link.now_ms)}
        assert ages == {away_ms}
        compare(two, one)
        assert two.view() == one.view() == [("now", "one", b"")]
