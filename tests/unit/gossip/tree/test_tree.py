"""Readers see the union of all visible branches."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.errors import BadRequest
from gossipkv.gossip.member import MemberState, member_id
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import BranchHead, Delta, Part
from gossipkv.gossip.tree.branch import DeltaOutcome, joined
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.gossip.tree.tree import MAX_BYTES, MAX_CHANGES, GossipTree, Index
from tests.unit.gossip.tree.linked import member

ME, ANN, BEN = member_id("me"), member_id("ann"), member_id("ben")


def tree(limits: TreeLimits | None = None) -> GossipTree:
    made = GossipTree(MemberTable(member("me"), 100), limits)
    for name in ("me", "ann", "ben"):
        made.on_member(member(name))
    return made


def publish(reader: GossipTree, owner: str, *paths: str, epoch: int = 1, value: bytes = b"") -> DeltaOutcome:
    """Apply the whole branch of an owner as one delta."""
    writer = GossipTree(MemberTable(member(owner, epoch), 1))
    for path in paths:
        writer.publish(path, value)
    outcome = DeltaOutcome.NOTHING
    sent = b"".join(writer.deltas(member_id(owner), 0, 0, part_bytes=60_000))
    for delta in joined(part for part in messages.read_parts(sent, 0) if isinstance(part, Delta)):
        outcome = reader.apply(delta)
    return outcome


def names(reader: GossipTree, path: str = "", *, hidden: bool = False) -> list[tuple[str, str, MemberState]]:
    return [(entry.name, entry.owner, entry.state) for entry in reader.entries(path, now_ms=0, all=hidden)]


def test_what_is_published_is_read_at_once() -> None:
    """A node reads its own writes, and takes them back."""
    made = tree()
    made.publish("nodes/1@a:1", b"x")
    made.publish("nodes/1@a:1", b"y")
    assert made.children("") == ["nodes"]
    assert made.children("nodes") == ["1@a:1"]
    (entry,) = made.entries("nodes", now_ms=5)
    assert (entry.name, entry.owner, entry.value, entry.version, entry.age_ms) == ("1@a:1", "me", b"y", 2, 0)
    assert made.published() == {"nodes/1@a:1": b"y"}
    assert made.withdraw("nodes/1@a:1")
    assert not made.withdraw("nodes/1@a:1")
    assert made.children("") == []


def test_children_are_leaves_and_inner_names_each_once_sorted() -> None:
    made = tree()
    publish(made, "ann", "p/db/2", "p/db/1", "p/z")
    publish(made, "ben", "p/db/2", "p/a/b/c")
    assert made.children("p") == ["a", "db", "z"]
    assert made.children("p/db") == ["1", "2"]
    assert made.children("p/db/1") == []
    assert made.children("nothing/here") == []
    assert names(made, "p/db") == [
        ("1", "ann", MemberState.ALIVE),
        ("2", "ann", MemberState.ALIVE),
        ("2", "ben", MemberState.ALIVE),
    ]
    assert names(made, "p") == [("z", "ann", MemberState.ALIVE)]


def test_all_children_are_of_the_hidden_too() -> None:
    """Each name occurs once; a reader of all keys finds keys of dead owners at any depth."""
    made = tree()
    publish(made, "ann", "p/db/2", "p/gone/1/x", "p/gone/1/y", "pp")
    publish(made, "ben", "p/db/2", "p/here")
    made.on_member(member("ann", state=MemberState.DEAD))
    assert made.children("p") == ["db", "here"]
    assert made.children("p", all=True) == ["db", "gone", "here"]
    assert made.children("p/gone", all=True) == ["1"]
    assert made.children("p/gone/1", all=True) == ["x", "y"]
    assert made.children("p/gone/1/x", all=True) == []
    assert made.children("", all=True) == ["p", "pp"]


def test_a_key_may_stand_above_others() -> None:
    """`a` and `a/b` are two keys."""
    made = tree()
    made.publish("a", b"1")
    made.publish("a/b", b"2")
    assert (made.children(""), made.children("a")) == (["a"], ["b"])
    made.withdraw("a")
    assert (made.children(""), made.children("a")) == (["a"], ["b"])
    assert names(made) == []
    made.withdraw("a/b")
    assert made.children("") == []


@pytest.mark.parametrize("state", [MemberState.SUSPECT, MemberState.DEAD, MemberState.LEFT])
def test_a_branch_is_shown_while_its_owner_is_alive(state: MemberState) -> None:
    """The branch disappears and returns in one step; a reader of all keys still sees it."""
    made = tree()
    publish(made, "ann", "k/1", "k/2")
    publish(made, "ben", "k/2")
    watch = made.watch("k")
    made.on_member(member("ann", state=state))
    assert watch.look() == 1
    assert made.children("k") == ["2"]
    assert names(made, "k", hidden=True) == [("1", "ann", state), ("2", "ann", state), ("2", "ben", MemberState.ALIVE)]
    if state is not MemberState.LEFT:
        made.on_member(member("ann", incarnation=1))
        assert watch.look() == 2
        assert made.children("k") == ["1", "2"]


def test_a_newer_epoch_takes_the_old_branch_away_at_once() -> None:
    """The old branch disappears before any new key has arrived, and never returns."""
    made = tree()
    publish(made, "ann", "k/old")
    watch = made.watch("k")
    made.on_member(member("ann", epoch=2))
    assert watch.changed
    assert (made.children("k"), names(made, "k", hidden=True)) == ([], [])
    assert publish(made, "ann", "k/old", "k/older") is DeltaOutcome.NOTHING
    assert made.children("k") == []
    publish(made, "ann", "k/new", epoch=2)
    assert made.children("k") == ["new"]


def test_a_branch_of_a_newer_epoch_waits_for_its_owner() -> None:
    """A delta before the record is requested again: otherwise any node could end an epoch by a delta."""
    made = tree()
    publish(made, "ann", "k/old")
    assert publish(made, "ann", "k/new", epoch=2) is DeltaOutcome.GAP
    assert made.children("k") == ["old"]
    made.on_member(member("ann", epoch=2))
    assert publish(made, "ann", "k/new", epoch=2) is DeltaOutcome.ADVANCED
    assert made.children("k") == ["new"]


def test_a_dead_epoch_stays_dead() -> None:
    """Deltas of a dead owner are kept for a refutation, but stay invisible."""
    made = tree()
    publish(made, "ann", "k/1")
    made.on_member(member("ann", state=MemberState.DEAD))
    publish(made, "ann", "k/1", "k/2")
    assert made.children("k") == []
    assert ANN not in made.rumours
    made.on_member(member("ann", incarnation=1))
    assert made.children("k") == ["1", "2"]


def test_an_unknown_owner_is_asked_about() -> None:
    """A change may overtake the record of its owner."""
    made = tree()
    assert publish(made, "zoe", "k/1") is DeltaOutcome.GAP
    made.on_member(member("zoe"))
    assert publish(made, "zoe", "k/1") is DeltaOutcome.ADVANCED


def test_nobody_else_writes_my_branch() -> None:
    made = tree()
    made.publish("k/1")
    assert publish(made, "me", "k/2", "k/3") is DeltaOutcome.NOTHING
    assert publish(made, "me", "k/2", epoch=9) is DeltaOutcome.NOTHING
    assert made.children("k") == ["1"]


def test_a_new_epoch_of_my_own_keeps_what_i_publish() -> None:
    """The keys get new versions and are sent anew."""
    made = tree()
    made.publish("k/1", b"x")
    made.publish("k/2")
    made.withdraw("k/2")
    watch = made.watch("k")
    made.on_member(member("me", epoch=5))
    assert made.head(ME) == (ME, 5, 1)
    assert made.children("k") == ["1"]
    assert not watch.changed
    reader = tree()
    reader.on_member(member("me", epoch=5))
    (delta,) = messages.read_parts(made.rumours.take(1000, 8)[0], 0)
    assert isinstance(delta, Delta)
    assert (delta.epoch, delta.since, delta.target) == (5, 0, 1)


def test_forgotten_members_leave_nothing() -> None:
    made = tree()
    publish(made, "ann", "k/1")
    made.on_member(member("ann", state=MemberState.DEAD))
    assert made.size_bytes
    made.forget(ANN)
    made.forget(ANN)
    assert (made.size_bytes, made.head(ANN).epoch, names(made, "k", hidden=True)) == (0, 0, [])


def test_ages_are_of_the_owner() -> None:
    """Keys are as old as the last contact with the owner, be it an hour or a year; own keys are fresh."""
    members = MemberTable(member("me"), 100)
    made = GossipTree(members)
    for name in ("me", "ann"):
        made.on_member(member(name))
    publish(made, "ann", "k/ann")
    made.publish("k/me")
    members.put(member("ann"), 1000)
    hour, year = 3_600_000, 365 * 86_400_000
    for age_ms in (0, hour, year):
        found = {entry.owner: entry.age_ms for entry in made.entries("k", now_ms=1000 + age_ms)}
        assert found == {"ann": age_ms, "me": 0}
    assert made.entries("k", now_ms=0)[0].age_ms == 0  # A clock that is behind yields no negative age.


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "a\0b", "x" * 256, "/".join(["y" * 200] * 6), "\udc80", "d/" * 16 + "e"]
)
def test_what_is_no_path(path: str) -> None:
    """A bad path is refused from the publisher and in a peer's delta."""
    made = tree()
    with pytest.raises(BadRequest):
        made.publish(path)
    if path.isascii() and len(path) <= messages.MAX_PATH_BYTES:
        delta = Delta(ANN, 1, 0, 0, 1, 1, reset=False, changes=(messages.BranchChange(1, path, b""),))
        assert made.apply(delta) is DeltaOutcome.REFUSED
        assert made.counters["branch_refused"] == 1
    if path:
        for read in (made.children, made.watch):
            with pytest.raises(BadRequest):
                read(path)


def test_tombstones_go_when_all_live_members_have_them() -> None:
    """Neither dead members nor newcomers are waited for; newcomers get the current state."""
    made = tree()
    made.publish("k/1")
    assert not made.has_tombstones
    made.withdraw("k/1")
    made.publish("k/2")
    assert made.has_tombstones
    made.acknowledged(ANN)
    assert made.has_tombstones
    made.on_member(member("zoe"))
    made.on_member(member("ben", state=MemberState.DEAD))
    assert not made.has_tombstones
    (part,) = made.deltas(ME, 1, 1, part_bytes=1000)
    (delta,) = messages.read_parts(part, 0)
    assert isinstance(delta, Delta)
    assert (delta.reset, delta.floor, delta.since, delta.target) == (True, 3, 0, 3)


def told(made: GossipTree) -> list[Part]:
    parts = made.rumours.take(1300, 8)
    return [part for sent in parts for part in messages.read_parts(sent, 0)]


def test_a_change_is_a_delta_on_the_way() -> None:
    """A key of sixty bytes makes a part of less than a hundred."""
    made = tree()
    made.publish("partitions/geo/2026/00012@10.0.0.1:7070", b"x" * 20)
    (part,) = made.rumours.take(1300, 8)
    assert len(part) < 100
    (delta,) = messages.read_parts(part, 0)
    assert isinstance(delta, Delta)
    assert (delta.owner, delta.since, delta.reach, delta.target) == (ME, 0, 1, 1)


def test_changes_shortly_after_ride_together() -> None:
    """A reader that missed one packet has no gap at the next one."""
    made = tree()
    made.publish("k/1")
    told(made)
    made.publish("k/2")
    made.withdraw("k/1")
    (delta,) = told(made)
    assert isinstance(delta, Delta)
    assert (delta.since, delta.target) == (0, 3)
    assert [(change.path, change.value) for change in delta.changes] == [("k/2", b""), ("k/1", None)]


def test_what_was_told_often_enough_is_done() -> None:
    """A later change is sent without the old one."""
    made = tree()
    made.publish("k/1")
    for _ in range(8):
        assert told(made)
    assert not told(made)
    made.publish("k/2")
    (delta,) = told(made)
    assert isinstance(delta, Delta)
    assert delta.since == 1


def test_the_longest_values_in_a_burst() -> None:
    """Sixteen such values exceed a part, which is noticed before the part is made."""
    made = tree(TreeLimits(max_entry_bytes=32_768, max_branch_bytes=1 << 20, protocol_branch_bytes=1 << 20))
    for number in range(MAX_CHANGES):
        made.publish(f"k/{number}", bytes(32_768 - 8))
    (head,) = told(made)
    assert isinstance(head, BranchHead)
    assert head.version == MAX_CHANGES


def test_a_burst_is_a_head() -> None:
    """Too many changes for a packet are announced by a head; so is a key too large for its share."""
    made = tree()
    for number in range(MAX_CHANGES):
        made.publish(f"k/{number}")
    assert isinstance(told(made)[0], Delta)
    made.publish("one/more")
    assert told(made) == [BranchHead(ME, 1, MAX_CHANGES + 1)]
    for number in range(500):
        made.publish(f"k/{number}")
    assert told(made) == [BranchHead(ME, 1, made.head(ME).version)]
    large = tree()
    large.publish("k", bytes(MAX_BYTES))
    assert told(large) == [BranchHead(ME, 1, 1)]


def test_a_delta_below_the_floor_is_a_head() -> None:
    """Collected tombstones must not be hidden by a delta."""
    made = tree()
    made.publish("k/1")
    made.withdraw("k/1")
    for id_ in (ANN, member_id("ben")):
        made.acknowledged(id_)
    assert not made.has_tombstones
    made.publish("k/2")
    assert told(made) == [BranchHead(ME, 1, 3)]


def test_what_was_heard_as_a_rumour_is_told_on_as_one() -> None:
    """The delta covers the step from the old local version to the new one."""
    made = tree()
    publish(made, "ann", "k/1")
    publish(made, "ann", "k/1", "k/2")
    (delta,) = told(made)
    assert isinstance(delta, Delta)
    assert (delta.owner, delta.since, delta.target) == (ANN, 0, 2)


def test_what_an_exchange_brought_is_told_on_as_a_head() -> None:
    """Most nodes have the news already; the others ask."""
    made = tree()
    publish(made, "ann", "k/1")
    while told(made):
        pass
    change = messages.BranchChange(2, "k/2", b"")
    made.apply(Delta(ANN, 1, 0, 1, 2, 2, reset=False, changes=(change,)), fresh=False)
    assert told(made) == [BranchHead(ANN, 1, 2)]


def test_the_dead_are_not_talked_about() -> None:
    """News about a branch are dropped with its owner."""
    made = tree()
    publish(made, "ann", "k/1")
    made.on_member(member("ann", state=MemberState.DEAD))
    assert not told(made)
    made.tell_head(ANN)
    assert not told(made)


OWNERS = (b"one", b"two")
NAMES = ("a", "a0", "a-", "a.b", "b", "\u00e4", "0")  # Names that sort before, beside and after "/".


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_stands_there(seed: int) -> None:
    """The index holds the keys and inner names of all owners after any additions and removals."""
    random, index = Random(seed), Index()
    kept: dict[bytes, set[str]] = {owner: set() for owner in OWNERS}
    for _ in range(200):
        owner = random.choice(OWNERS)
        path = "/".join(random.choices(NAMES, k=random.randint(1, 4)))
        if path in kept[owner]:
            index.remove(owner, [path])
            kept[owner].remove(path)
        else:
            index.add(owner, [path])
            kept[owner].add(path)
        place = "/".join(random.choices(NAMES, k=random.randint(0, 2)))
        prefix = f"{place}/" if place else ""
        below = [(key[len(prefix) :], who) for who in OWNERS for key in kept[who] if key.startswith(prefix)]
        assert index.names(place) == {key.partition("/")[0] for key, _ in below}
        assert sorted(index.leaves(place)) == sorted((key, who) for key, who in below if "/" not in key)


def test_a_key_that_is_not_there_is_caught() -> None:
    """The removal would hit another key."""
    index = Index()
    index.add(b"one", ["a", "c"])
    for path in ("b", "d"):
        with pytest.raises(AssertionError):
            index.remove(b"one", [path])


def test_who_has_nothing_may_have_it_removed() -> None:
    """A member that has withdrawn all its keys leaves in this way."""
    index = Index()
    index.add(b"one", ["a"])
    index.remove(b"one", ["a"])
    index.remove(b"one", [])
    index.add(b"one", [])
    index.remove(b"one", [])
    assert (index.names(""), index.leaves("")) == (set(), [])
