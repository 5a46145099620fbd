"""A branch changes delta by delta."""

from __future__ import annotations

import pytest

from gossipkv.gossip.packets.messages import BranchChange, Delta
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, chunks, joined
from gossipkv.gossip.tree.limits import ITEM_OVERHEAD_BYTES
from tests.unit.gossip.tree.transfers import MOST, OWNER, deltas, recounted_bytes, shown


def change(text: str) -> BranchChange:
    """Return a key for `k@5` and a tombstone for `-k@5`; the value names the version."""
    path, _, version = text.lstrip("-").partition("@")
    return BranchChange(int(version), path, None if text.startswith("-") else version.encode())


def delta(since: int, reach: int, target: int, *changes: str, floor: int = 0, reset: bool = False) -> Delta:
    return Delta(OWNER, 1, floor, since, reach, target, reset, tuple(map(change, changes)))


def at(*changes: str, version: int) -> Branch:
    """Return a branch that reached a version in one step."""
    branch = Branch(1)
    assert branch.apply(delta(0, version, version, *changes), MOST)[0] is DeltaOutcome.ADVANCED
    return branch


def test_a_delta_cut_short_shows_nothing() -> None:
    """k@5, m@6, k@7, cut after 6: no owner ever had m without any k."""
    branch = at("k@4", version=4)
    first, second = delta(4, 6, 7, "m@6"), delta(6, 7, 7, "k@7")
    for piece in (first, second):
        assert branch.apply(piece, MOST) == (DeltaOutcome.GAP, None)
    assert (shown(branch), branch.version) == ({"k": b"4"}, 4)
    (whole,) = joined((first, second))
    outcome, step = branch.apply(whole, MOST)
    assert outcome is DeltaOutcome.ADVANCED
    assert step is not None
    assert (step.added, step.removed, step.altered) == (["m"], [], ["k"])
    assert (shown(branch), branch.version) == ({"k": b"7", "m": b"6"}, 7)


def test_pieces_are_joined_that_follow_each_other() -> None:
    """Pieces of one branch and state are joined; other parts stay separate."""
    first, second = delta(0, 2, 5, "a@1", "b@2"), delta(2, 5, 5, "c@5")
    whole = delta(0, 5, 5, "a@1", "b@2", "c@5")
    other = second._replace(owner=b"another.")
    assert list(joined([first, second, first, second])) == [whole, whole]
    assert list(joined([whole, whole])) == [whole, whole]
    assert list(joined([first, other, second])) == [first, other, second]
    assert list(joined([second, first])) == [second, first]
    for strange in (
        second._replace(epoch=2),
        second._replace(target=6),
        second._replace(floor=1),
        second._replace(reset=True),
        delta(3, 5, 5, "c@5"),
    ):
        assert list(joined([first, strange])) == [first, strange]
    assert not list(joined([]))


def test_doubled_and_late_deltas_are_nothing() -> None:
    branch = Branch(1)
    first, second = delta(0, 2, 2, "a@1", "b@2"), delta(1, 3, 3, "b@2", "-a@3")
    assert branch.apply(first, MOST)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(first, MOST)[0] is DeltaOutcome.NOTHING
    assert branch.apply(second, MOST)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(second, MOST)[0] is DeltaOutcome.NOTHING
    assert branch.apply(first, MOST)[0] is DeltaOutcome.NOTHING
    assert shown(branch) == {"b": b"2"}


def test_a_gap_is_told() -> None:
    """A delta that starts beyond the branch's version cannot be applied."""
    branch = at("a@1", version=1)
    assert branch.apply(delta(2, 3, 3, "b@3"), MOST)[0] is DeltaOutcome.GAP
    assert branch.apply(delta(2, 3, 3, "b@3", reset=True), MOST)[0] is DeltaOutcome.GAP
    assert branch.apply(delta(1, 3, 3, "b@3", reset=True), MOST)[0] is DeltaOutcome.GAP
    assert shown(branch) == {"a": b"1"}


def test_a_reset_takes_the_place_of_everything_in_one_step() -> None:
    """Keys that are missing from the reset are gone."""
    branch = at("a@1", "b@2", version=2)
    outcome, step = branch.apply(delta(0, 9, 9, "c@5", "-d@8", "b@9", floor=7, reset=True), MOST)
    assert outcome is DeltaOutcome.ADVANCED
    assert step is not None
    assert (step.added, step.removed, step.altered) == (["c"], ["a"], ["b"])
    assert (shown(branch), branch.gone, branch.version, branch.floor) == ({"c": b"5", "b": b"9"}, {"d": 8}, 9, 7)


def test_an_empty_reset_empties() -> None:
    """The owner took everything back and forgot the tombstones."""
    branch = at("a@1", version=1)
    assert branch.apply(delta(0, 2, 2, floor=2, reset=True), MOST)[0] is DeltaOutcome.ADVANCED
    assert (shown(branch), branch.version, branch.floor) == ({}, 2, 2)


def test_tombstones_below_the_floor_are_not_kept() -> None:
    """Tombstones that the owner dropped are removed, and later copies are not accepted."""
    branch = at("a@1", "-b@2", "-c@3", version=3)
    assert branch.apply(delta(3, 4, 4, "d@4", floor=2), MOST)[0] is DeltaOutcome.ADVANCED
    assert (branch.gone, branch.floor) == ({"c": 3}, 2)
    assert branch.apply(delta(0, 6, 6, "-b@2", "-c@3", "-d@5", "a@6", reset=True), MOST)[0] is DeltaOutcome.ADVANCED
    assert (shown(branch), branch.gone, branch.floor) == ({"a": b"6"}, {"c": 3, "d": 5}, 2)


def test_of_a_path_that_is_told_twice_the_last_counts() -> None:
    """A sender that names a path twice breaks the protocol, but cannot hide the true cost."""
    branch = at("a@1", version=1)
    large = BranchChange(4, "a", bytes(500))
    twice = delta(1, 4, 4, "-a@2", "b@3")._replace(changes=(change("-a@2"), change("b@3"), large))
    assert branch.apply(twice, 2 * ITEM_OVERHEAD_BYTES)[0] is DeltaOutcome.REFUSED
    assert branch.apply(twice, MOST)[0] is DeltaOutcome.ADVANCED
    assert (shown(branch), branch.gone) == ({"b": b"3", "a": bytes(500)}, {})
    assert branch.size_bytes == recounted_bytes(branch) == 2 * (ITEM_OVERHEAD_BYTES + 1) + 501


def test_third_parties_serve_from_where_they_can() -> None:
    """A reader's own floor decides whether it may send changes or must send everything."""
    owner = Branch(1)
    for path in "abcd":
        owner.put(path, b"")
    owner.withdraw("a")
    owner.withdraw("b")
    owner.collect(5)
    third = Branch(1)
    for part in deltas(chunks(OWNER, owner, 0, 1400)):
        third.apply(part, MOST)
    assert (third.floor, third.gone) == (5, {"b": 6})
    assert [part.reset for part in deltas(chunks(OWNER, third, 5, 1400))] == [False]
    assert [part.reset for part in deltas(chunks(OWNER, third, 4, 1400))] == [True]


def test_nothing_is_sent_to_who_has_it() -> None:
    assert not list(chunks(OWNER, at("a@1", version=1), 1, 1400))
    assert not list(chunks(OWNER, Branch(1), 0, 1400))


def test_a_change_larger_than_a_part_has_its_own() -> None:
    """The caller sees the size and takes another way."""
    branch = Branch(1)
    branch.put("a", b"")
    branch.put("large", bytes(3000))
    branch.put("z", b"")
    assert [len(part) > 1400 for part in chunks(OWNER, branch, 0, 1400)] == [False, True, False]


@pytest.mark.parametrize("reset", [False, True])
def test_a_branch_beyond_the_protocol_stays_where_it_is(reset: bool) -> None:
    """One byte too much, in keys or tombstones, refuses the delta; a later delta that fits is accepted."""
    branch = at("a@1", version=1)
    before = ["a@1"] if reset else []
    sent = delta(0 if reset else 1, 3, 3, *before, "-b@2", "c@3", reset=reset)
    most = 3 * ITEM_OVERHEAD_BYTES + 5
    for _ in range(3):
        assert branch.apply(sent, most - 1) == (DeltaOutcome.REFUSED, None)
    assert (shown(branch), branch.gone, branch.version) == ({"a": b"1"}, {}, 1)
    assert branch.apply(delta(1, 4, 4, "-a@4"), most - 1)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(delta(0, 5, 5, "-b@2", "c@3", "-a@5", reset=True), most)[0] is DeltaOutcome.ADVANCED
    assert (shown(branch), branch.gone) == ({"c": b"3"}, {"b": 2, "a": 5})


def test_only_the_whole_is_judged() -> None:
    """k@3 was published while there was room, before the tombstones that made it, all of which are kept here."""
    branch = at("a@1", "b@2", version=2)
    most = 4 * (ITEM_OVERHEAD_BYTES + 2)
    assert branch.apply(delta(2, 7, 7, "k@4", "-a@5", "-b@6", "l@7"), most)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(delta(7, 9, 9, "m@9", floor=6), most)[0] is DeltaOutcome.ADVANCED  # All collected.
    assert (list(shown(branch)), branch.gone) == (["k", "l", "m"], {})


def test_the_oldest_tombstones_make_room_for_keys() -> None:
    """Tombstones leave only as needed, so that keys never lack room."""
    branch = Branch(1)
    for path in "abcd":
        branch.put(path, b"")
    for path in "bdac":
        branch.withdraw(path)
    assert list(branch.gone) == ["b", "d", "a", "c"]
    branch.put("k", b"")
    most = 3 * (ITEM_OVERHEAD_BYTES + 1)
    branch.fit(most)
    assert (list(branch.gone), branch.floor, branch.size_bytes) == (["a", "c"], 6, most)
    branch.fit(most)
    branch.put("a", b"")
    branch.put("c", b"")
    branch.fit(most)
    assert (list(branch.live), branch.gone, branch.floor) == (["k", "a", "c"], {}, 6)
    branch.put("z", b"")
    with pytest.raises(AssertionError):
        branch.fit(most)


def test_sizes_are_what_is_kept() -> None:
    """After put, replace, withdraw and collect, no bytes are left over."""
    branch = Branch(1)
    branch.put("a", b"1")
    branch.put("a", b"two")
    branch.withdraw("a")
    branch.put("a", b"")
    branch.withdraw("a")
    assert branch.size_bytes == ITEM_OVERHEAD_BYTES + 1
    branch.collect(branch.version)
    assert branch.size_bytes == 0
