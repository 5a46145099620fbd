"""Watchers are woken once, and never left with an old state."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.gossip.member import MemberState, member_id
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.packets import messages
from gossipkv.gossip.tree.tree import GossipTree
from gossipkv.gossip.tree.watch import TreeWatch, Watches
from tests.unit.gossip.tree.linked import member
from tests.unit.gossip.tree.test_tree import publish, tree


def test_a_watcher_hears_of_what_is_below_it() -> None:
    """A watcher covers its path and below, not siblings; the root covers everything."""
    watches = Watches()
    below, root, beside = TreeWatch("a/b"), TreeWatch(""), TreeWatch("a/bc")
    for watch in (below, root, beside):
        watches.add(watch)
    for path in ("a/b", "a/b/c", "a/b/c/d"):
        watches.step([path])
    watches.step(["a/x"])
    assert (below.revision, root.revision, beside.revision) == (3, 4, 0)


def test_one_step_is_one_revision() -> None:
    watches = Watches()
    watch = TreeWatch("a")
    watches.add(watch)
    watches.step([f"a/{number}" for number in range(100)])
    assert watch.revision == 1


def test_a_watcher_is_woken_once_until_its_reader_looks() -> None:
    """Steps in between count as one wake-up, so nothing piles up for a slow reader."""
    woken = []
    made = tree()
    watch = made.watch("k", lambda: woken.append(watch.revision))
    for number in range(50):
        made.publish(f"k/{number}")
    assert woken == [1]
    assert watch.changed
    assert watch.look() == 50
    assert not watch.changed
    made.withdraw("k/7")
    assert woken == [1, 51]


def test_same_value_wakes_nobody() -> None:
    made = tree()
    made.publish("k/1", b"x")
    watch = made.watch("k")
    made.publish("k/1", b"x")
    assert not watch.changed
    assert made.head(made.own).version == 1


def test_withdrawals_and_values_wake_too() -> None:
    made = tree()
    watch = made.watch("k")
    publish(made, "ann", "k/1")
    assert watch.look() == 1
    publish(made, "ann", "k/0", "k/1", value=b"new")
    assert watch.look() == 2
    publish(made, "ann", "z", "z2", "z3", "k/1")  # A larger version with k/0 still there: one key altered.
    assert watch.look() == 3


def test_states_wake_who_reads_all() -> None:
    """The step from suspect to dead matters only to readers of all keys."""
    made = tree()
    publish(made, "ann", "k/1")
    watch = made.watch("k")
    for state in (MemberState.SUSPECT, MemberState.DEAD):
        made.on_member(member("ann", state=state))
    assert watch.look() == 2
    made.forget(member_id("ann"))
    assert watch.changed


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_the_last_state_is_never_missed(first: int) -> None:
    """A reader that lists only when woken ends with the current state; its revisions only grow."""
    for seed in range(first, first + 50):
        random = Random(seed)
        made, writer = tree(), GossipTree(MemberTable(member("ann"), 1))
        seen: dict[str, tuple[int, object]] = {}
        watches = [made.watch(path) for path in ("", "a", "a/b")]
        for _ in range(60):
            _happen(random, writer, made)
            _carry(writer, made)
            for watch in watches:
                if watch.changed and random.random() < 0.5:
                    before = seen.get(watch.path, (0, None))[0]
                    seen[watch.path] = (watch.look(), _listing(made, watch.path))
                    assert seen[watch.path][0] > before
        for watch in watches:
            if not watch.changed:
                assert seen.get(watch.path, (0, _listing(tree(), watch.path)))[1] == _listing(made, watch.path)


def _happen(random: Random, writer: GossipTree, made: GossipTree) -> None:
    path = random.choice(["a/b/1", "a/b/2", "a/c", "d"])
    draw = random.random()
    if draw < 0.4:
        writer.publish(path, bytes([random.randrange(9)]))
    elif draw < 0.6:
        writer.withdraw(path)
    elif draw < 0.8:
        made.on_member(member("ann", state=random.choice([MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEAD])))


def _carry(writer: GossipTree, reader: GossipTree) -> None:
    head = reader.head(writer.own)
    for part in writer.deltas(writer.own, head.epoch, head.version, part_bytes=1400):
        for delta in messages.read_parts(part, 0):
            assert isinstance(delta, messages.Delta)
            reader.apply(delta)


def _listing(made: GossipTree, path: str) -> object:
    entries = [(entry.name, entry.owner, entry.value) for entry in made.entries(path, now_ms=0, all=True)]
    return made.children(path), entries
