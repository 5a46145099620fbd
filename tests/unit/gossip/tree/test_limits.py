"""Owners may publish within limits, and receivers accept within the protocol's limits."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import MemberState, member_id
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.packets.messages import MAX_VALUE_BYTES, BranchChange, Delta
from gossipkv.gossip.tree.branch import DeltaOutcome
from gossipkv.gossip.tree.limits import ITEM_OVERHEAD_BYTES, MAX_BRANCH_BYTES, TreeLimits, item_bytes
from gossipkv.gossip.tree.tree import GossipTree
from gossipkv.settings.config import SETTINGS
from gossipkv.settings.quantity import SIZE, parse
from tests.unit.gossip.tree.linked import member, pair

if TYPE_CHECKING:
    from collections.abc import Callable

ME, ANN, BEN = member_id("me"), member_id("ann"), member_id("ben")
COST = ITEM_OVERHEAD_BYTES + 3  # The cost of a key `k/1` without a value.


def tree(keys: int, *, beside: int = 0, **limits: int) -> GossipTree:
    """Return the tree of `me` with room for this many keys and extra tombstones; it knows `ann` and `ben`."""
    bounds = TreeLimits(max_branch_bytes=keys * COST, protocol_branch_bytes=(keys + beside) * COST, **limits)
    made = GossipTree(MemberTable(member("me"), 100), bounds)
    for name in ("me", "ann", "ben"):
        made.on_member(member(name))
    return made


def delta(owner: bytes, since: int, target: int, *texts: str, reset: bool = False) -> Delta:
    """Return changes with the versions after `since`: `k/1` a key, `-k/1` a tombstone."""
    changes = tuple(
        BranchChange(version, text.lstrip("-"), None if text.startswith("-") else b"")
        for version, text in enumerate(texts, since + 1)
    )
    return Delta(owner, 1, 0, since, target, target, reset=reset, changes=changes)


def test_an_owner_is_refused_and_nothing_has_changed() -> None:
    """Too large a key or branch is refused; a shorter value, or the room of a withdrawn key, is accepted."""
    made = tree(2, max_entry_bytes=10)
    made.publish("k/1", b"1234567")
    with pytest.raises(TooLarge, match="11 bytes, max_entry is 10") as caught:
        made.publish("k/1", b"12345678")
    assert caught.value.details == {"max_entry": 10, "size": 11}
    with pytest.raises(TooLarge, match=f"{2 * COST + 7} bytes, max_branch is {2 * COST}"):
        made.publish("k/2")
    assert (made.published(), made.head(ME).version) == ({"k/1": b"1234567"}, 1)
    made.publish("k/1", b"")
    made.publish("k/2")
    with pytest.raises(TooLarge):
        made.publish("k/3")
    made.withdraw("k/2")
    made.publish("k/3")
    assert made.children("k") == ["1", "3"]


def test_paths_count_by_their_letters() -> None:
    """Lengths count as in Python's memory, so a branch never exceeds its cost on the wire and fits one reply."""
    assert item_bytes("k/a", b"12") == ITEM_OVERHEAD_BYTES + 5
    for letter in "äλ中😀":
        path = f"k/{letter}"
        assert len(path.encode()) <= item_bytes(path, None) - ITEM_OVERHEAD_BYTES == 12
    made = tree(1)
    with pytest.raises(TooLarge):
        made.publish("k/ä")


def test_what_was_withdrawn_never_stands_in_the_way() -> None:
    """The oldest tombstones go first and only for room; readers that missed them get the branch anew."""
    made = tree(2, beside=1)
    for number in range(1, 9):
        made.publish(f"k/{number}")
        assert made.size_bytes <= 3 * COST
        made.withdraw(f"k/{number}")
    branch = made._branches[ME]
    assert (list(branch.gone), branch.floor) == (["k/6", "k/7", "k/8"], 10)
    made.publish("k/x")
    made.publish("k/y")
    assert (list(branch.gone), branch.floor) == (["k/8"], 14)


def test_others_are_bound_by_the_protocol_alone() -> None:
    """This node's own limits apply neither to other branches nor to their keys."""
    made = tree(1, beside=3, max_entry_bytes=4)
    assert made.apply(delta(ANN, 0, 3, "k/1", "k/2", "k/3")) is DeltaOutcome.ADVANCED
    large = BranchChange(1, "k", bytes(3 * COST))
    assert made.apply(Delta(BEN, 1, 0, 0, 1, 1, reset=False, changes=(large,))) is DeltaOutcome.ADVANCED
    assert made.apply(delta(ANN, 3, 5, "k/4", "-k/5")) is DeltaOutcome.REFUSED
    assert made.children("k") == ["1", "2", "3"]
    assert made.counters["branch_refused"] == 1
    assert made.apply(delta(ANN, 3, 6, "-k/1")) is DeltaOutcome.ADVANCED


def test_a_branch_beyond_the_protocol_leaves_nothing_behind() -> None:
    """A refused branch leaves a counter and the last state, which is passed on."""
    made = tree(2)
    assert made.apply(delta(ANN, 0, 1, "k/1")) is DeltaOutcome.ADVANCED
    made.take_moved()
    before = made.head(ANN), made.size_bytes
    for number in range(3, 103):
        assert made.apply(delta(ANN, 1, number, "k/2", "k/3")) is DeltaOutcome.REFUSED
    assert (made.head(ANN), made.size_bytes) == before
    assert made.counters["branch_refused"] == 100
    assert not made.take_moved()


def test_memory_is_bounded_by_the_members() -> None:
    """Each member publishes all that the protocol allows or more; the dead keep their branches."""
    most = MAX_BRANCH_BYTES
    made = GossipTree(MemberTable(member("me"), 100))
    names = [f"peer-{number}" for number in range(20)]
    for name in names:
        made.on_member(member(name))
        for version in range(1, 12):
            change = (BranchChange(version, f"k/{version}", bytes(MAX_VALUE_BYTES)),)
            made.apply(Delta(member_id(name), 1, 0, version - 1, version, version, reset=False, changes=change))
        assert made.head(member_id(name)).version == 7
        made.on_member(member(name, state=MemberState.DEAD))
    assert len(names) * most * 3 // 4 < made.size_bytes <= len(names) * most
    assert made.counters["branch_refused"] == len(names)


PATHS: dict[str, Callable[[int], str]] = {
    "short": str,
    "usual": "partitions/geo/2026/{:05}@10.0.0.1:7070".format,
    "deep": lambda number: "/".join([str(number)] * 16),
    "long": lambda number: f"{number:04}/".ljust(204, "x") + ("/" + "y" * 204) * 4,
    "of_mixed_letters": lambda number: f"{number:04}/😀{'x' * 200}",
    "of_other_letters": lambda number: f"{number:04}/{'ä' * 100}",
}


@pytest.mark.parametrize("size", [None, 0, 16, MAX_VALUE_BYTES])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_branch_takes_what_it_is_counted_with(path: Callable[[int], str], size: int | None) -> None:
    """The counted cost covers the memory for keys of any shape and for tombstones alone."""
    made = GossipTree(MemberTable(member("me"), 100))
    made.on_member(member("ann"))
    most = MAX_BRANCH_BYTES // item_bytes(path(9999), None if size is None else bytes(size))
    tracemalloc.start()
    before_bytes = tracemalloc.get_traced_memory()[0]
    numbers = range(1, most + 1)
    changes = tuple(BranchChange(number, path(number), None if size is None else bytes(size)) for number in numbers)
    outcome = made.apply(Delta(ANN, 1, 0, 0, most, most, reset=False, changes=changes), fresh=False)
    del changes
    taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    tracemalloc.stop()
    assert outcome is DeltaOutcome.ADVANCED
    assert made.size_bytes > MAX_BRANCH_BYTES * 7 // 8
    assert taken_bytes <= MAX_BRANCH_BYTES * 5 // 4


def test_a_branch_that_breaks_the_rule_costs_an_exchange_now_and_then() -> None:
    """The owner announces more and is asked ever more rarely; other nodes stay equal."""
    link, one, two = pair()
    three = link.node("three")
    for node in (one, two):
        node.knows(three)
    three.knows(one, two)
    one.tree.publish("k/1")
    link.settle()
    one.tree.limits = TreeLimits(max_branch_bytes=1 << 20, protocol_branch_bytes=1 << 20, max_entry_bytes=40_000)
    for number in range(2, 12):
        one.tree.publish(f"k/{number}", bytes(32_000))
    for _ in range(300):
        link.pass_time(200)
        two.ping(one)
        three.ping(two)
        link.run()
    assert {node.tree.head(one.id).version for node in (two, three)} == {1}
    assert two.exchange.state_hash == three.exchange.state_hash != one.exchange.state_hash
    assert 0 < two.tree.counters["branch_refused"] <= 60 // 8 + 8
    assert two.tree.size_bytes == three.tree.size_bytes < 1000


def test_settings_allow_no_more_than_the_protocol() -> None:
    """The documented bound of `max_branch` is the protocol's, and so is its default."""
    (setting,) = (setting for setting in SETTINGS if setting.name == "max_branch")
    assert parse(setting.allowed.rpartition(" ")[2], SIZE) == MAX_BRANCH_BYTES
    assert TreeLimits().max_branch_bytes == parse("256KiB", SIZE) == MAX_BRANCH_BYTES
