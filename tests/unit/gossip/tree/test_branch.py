"""One branch, delta by delta."""

from __future__ import annotations

import pytest

from gossipkv.gossip.packets.messages import Change, Delta
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, chunks
from gossipkv.gossip.tree.limits import ITEM_OVERHEAD_BYTES, TreeLimits
from tests.unit.gossip.tree.transfers import LIMITS, OWNER, deltas, shown


def change(text: str) -> Change:
    """`k@5` a key, `-k@5` a tombstone; the value names the version."""
    path, _, version = text.lstrip("-").partition("@")
    return Change(int(version), path, None if text.startswith("-") else version.encode())


def delta(since: int, reach: int, target: int, *changes: str, floor: int = 0, reset: bool = False) -> Delta:
    """A delta in few words."""
    return Delta(OWNER, 1, floor, since, reach, target, reset, tuple(map(change, changes)))


def at(*changes: str, version: int) -> Branch:
    """A branch that came to a version in one step."""
    branch = Branch(1)
    assert branch.apply(delta(0, version, version, *changes), LIMITS)[0] is DeltaOutcome.ADVANCED
    return branch


def test_a_delta_cut_short_shows_nothing_yet() -> None:
    """k@5, m@6, k@7, cut after 6: nobody ever had m without any k."""
    branch = at("k@4", version=4)
    outcome, step = branch.apply(delta(4, 6, 7, "m@6"), LIMITS)
    assert (outcome, step, shown(branch), branch.version) == (DeltaOutcome.STAGED, None, {"k": b"4"}, 4)
    outcome, step = branch.apply(delta(6, 7, 7, "k@7"), LIMITS)
    assert outcome is DeltaOutcome.ADVANCED
    assert step is not None
    assert (step.came, step.went, step.altered) == (["m"], [], ["k"])
    assert (shown(branch), branch.version) == ({"k": b"7", "m": b"6"}, 7)


def test_a_later_target_moves_the_moment() -> None:
    """What goes on at a newer state of the sender is shown at that state, not at the one that was aimed for first."""
    branch = Branch(1)
    branch.apply(delta(0, 1, 3, "a@1"), LIMITS)
    assert branch.apply(delta(1, 3, 5, "b@2"), LIMITS)[0] is DeltaOutcome.STAGED  # c@3 has a later version by now.
    assert branch.apply(delta(3, 5, 5, "-a@4", "c@5"), LIMITS)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"b": b"2", "c": b"5"}


def test_doubled_and_late_deltas_are_nothing() -> None:
    """What is known already changes nothing, staged or visible."""
    branch = Branch(1)
    first, second = delta(0, 2, 3, "a@1", "b@2"), delta(2, 3, 3, "-a@3")
    assert branch.apply(first, LIMITS)[0] is DeltaOutcome.STAGED
    assert branch.apply(first, LIMITS)[0] is DeltaOutcome.NOTHING
    assert branch.apply(second, LIMITS)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(second, LIMITS)[0] is DeltaOutcome.NOTHING
    assert branch.apply(first, LIMITS)[0] is DeltaOutcome.NOTHING
    assert shown(branch) == {"b": b"2"}


def test_a_gap_is_told() -> None:
    """A delta that begins after what is here cannot be taken."""
    branch = at("a@1", version=1)
    assert branch.apply(delta(2, 3, 3, "b@3"), LIMITS)[0] is DeltaOutcome.GAP
    assert branch.apply(delta(2, 3, 3, "b@3", reset=True), LIMITS)[0] is DeltaOutcome.GAP
    assert shown(branch) == {"a": b"1"}


def test_a_reset_takes_the_place_of_everything_in_one_step() -> None:
    """What the reset does not have is gone; nothing is seen before it is whole."""
    branch = at("a@1", "b@2", version=2)
    assert branch.apply(delta(0, 5, 9, "c@5", floor=7, reset=True), LIMITS)[0] is DeltaOutcome.STAGED
    assert shown(branch) == {"a": b"1", "b": b"2"}
    outcome, step = branch.apply(delta(5, 9, 9, "-d@8", "b@9", floor=7, reset=True), LIMITS)
    assert outcome is DeltaOutcome.ADVANCED
    assert step is not None
    assert (step.came, step.went, step.altered) == (["c"], ["a"], ["b"])
    assert (shown(branch), branch.gone, branch.version, branch.floor) == ({"c": b"5", "b": b"9"}, {"d": 8}, 9, 7)


def test_an_empty_reset_empties() -> None:
    """An owner that took everything back, and forgot the tombstones."""
    branch = at("a@1", version=1)
    assert branch.apply(delta(0, 2, 2, floor=2, reset=True), LIMITS)[0] is DeltaOutcome.ADVANCED
    assert (shown(branch), branch.version, branch.floor) == ({}, 2, 2)


def test_a_reset_that_goes_on_above_its_floor_starts_over() -> None:
    """The tombstone that another sender no longer has may have taken what is staged: chitchat #110."""
    branch = Branch(1)
    branch.apply(delta(0, 6, 9, "k@5", floor=4, reset=True), LIMITS)
    # k was withdrawn at 10, and the tombstone collected.
    assert branch.apply(delta(6, 11, 11, "m@11", floor=10, reset=True), LIMITS)[0] is DeltaOutcome.GAP
    assert branch.apply(delta(0, 11, 11, "m@11", floor=10, reset=True), LIMITS)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"m": b"11"}


def test_a_reset_may_go_on_at_a_floor_that_it_has_seen() -> None:
    """Up to the state that the first part was taken from, no tombstone can be missed."""
    branch = Branch(1)
    branch.apply(delta(0, 6, 9, "k@5", floor=4, reset=True), LIMITS)
    assert branch.apply(delta(6, 11, 11, "-k@10", "m@11", floor=9, reset=True), LIMITS)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"m": b"11"}


def test_an_older_whole_delta_is_shown_while_a_newer_one_is_staged() -> None:
    """Two transfers at once: each state is shown when it is whole, and the staged one goes on."""
    branch = at("k@1", version=1)
    assert branch.apply(delta(1, 4, 6, "a@2", "b@4"), LIMITS)[0] is DeltaOutcome.STAGED
    assert branch.apply(delta(1, 3, 3, "a@2", "-k@3"), LIMITS)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"a": b"2"}
    outcome, step = branch.apply(delta(4, 6, 6, "-a@5", "c@6"), LIMITS)
    assert outcome is DeltaOutcome.ADVANCED
    assert step is not None
    assert (sorted(step.came), step.went, step.altered) == (["b", "c"], ["a"], [])
    assert shown(branch) == {"b": b"4", "c": b"6"}


def test_what_was_shown_meanwhile_is_not_touched_by_what_was_staged() -> None:
    """A staged change at a version that became visible keeps its place in the order of versions."""
    branch = Branch(1)
    branch.apply(delta(0, 2, 6, "a@1", "b@2"), LIMITS)
    branch.apply(delta(0, 4, 4, "a@1", "b@2", "c@4"), LIMITS)
    outcome, step = branch.apply(delta(2, 6, 6, "c@4", "d@6"), LIMITS)
    assert outcome is DeltaOutcome.ADVANCED
    assert step is not None
    assert (step.came, step.altered) == (["d"], [])
    assert branch.changes(3) == [change("c@4"), change("d@6")]


def test_part_of_an_older_state_does_not_displace_what_is_staged() -> None:
    """A slow sender's transfer does not undo a newer one that is half here."""
    branch = Branch(1)
    branch.apply(delta(0, 4, 6, "a@2", "b@4"), LIMITS)
    assert branch.apply(delta(0, 1, 5, "x@1"), LIMITS)[0] is DeltaOutcome.NOTHING
    assert branch.apply(delta(4, 5, 5, "c@5"), LIMITS)[0] is DeltaOutcome.GAP
    assert branch.apply(delta(4, 6, 6, "c@6"), LIMITS)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"a": b"2", "b": b"4", "c": b"6"}


def test_a_transfer_that_nobody_goes_on_with_is_let_go() -> None:
    """When all others are at an older state, what is staged leads nowhere."""
    branch = Branch(1)
    branch.apply(delta(0, 4, 1 << 60, "a@2", "b@4"), LIMITS)
    for _ in range(3):
        assert branch.reach == 4
        assert branch.apply(delta(4, 5, 5, "c@5"), LIMITS)[0] is DeltaOutcome.GAP
    assert (branch.reach, branch.staged_bytes) == (0, 0)
    assert branch.apply(delta(0, 5, 5, "a@2", "b@4", "c@5"), LIMITS)[0] is DeltaOutcome.ADVANCED


def test_what_a_transfer_left_behind_is_let_go() -> None:
    """A transfer that was overtaken costs nothing any more."""
    branch = Branch(1)
    branch.apply(delta(0, 1, 3, "a@1"), LIMITS)
    assert branch.staged_bytes
    branch.apply(delta(0, 4, 4, "a@1", "b@4"), LIMITS)
    assert not branch.staged_bytes


def test_third_parties_serve_from_where_they_can() -> None:
    """A reader's own floor decides what it may send as changes, and from where it must send everything."""
    owner = Branch(1)
    for path in "abcd":
        owner.put(path, b"")
    owner.withdraw("a")
    owner.withdraw("b")
    owner.collect(5)
    third = Branch(1)
    for part in deltas(chunks(OWNER, owner, 0, 1400)):
        third.apply(part, LIMITS)
    assert (third.floor, third.gone) == (5, {"b": 6})
    assert [part.reset for part in deltas(chunks(OWNER, third, 5, 1400))] == [False]
    assert [part.reset for part in deltas(chunks(OWNER, third, 4, 1400))] == [True]


def test_nothing_is_sent_to_who_has_it() -> None:
    """Chunks of what is after the newest version are none."""
    assert not list(chunks(OWNER, at("a@1", version=1), 1, 1400))
    assert not list(chunks(OWNER, Branch(1), 0, 1400))


def test_a_change_larger_than_a_part_has_its_own() -> None:
    """The caller sees the size and takes another way."""
    branch = Branch(1)
    branch.put("a", b"")
    branch.put("large", bytes(3000))
    branch.put("z", b"")
    assert [len(part) > 1400 for part in chunks(OWNER, branch, 0, 1400)] == [False, True, False]


def test_a_branch_over_a_limit_stays_at_its_last_state() -> None:
    """Keys and bytes; what was staged is let go."""
    few = TreeLimits(max_branch_keys=2)
    branch = at("a@1", version=1)
    assert branch.apply(delta(1, 3, 3, "b@2", "c@3"), few)[0] is DeltaOutcome.REFUSED
    assert branch.apply(delta(1, 2, 4, "b@2"), few)[0] is DeltaOutcome.STAGED
    assert branch.apply(delta(2, 4, 4, "c@4"), few)[0] is DeltaOutcome.REFUSED
    assert (shown(branch), branch.staged_bytes) == ({"a": b"1"}, 0)
    assert branch.apply(delta(1, 4, 4, "b@2", "-a@3", "c@4"), few)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(delta(0, 9, 9, "a@7", "b@8", "c@9", floor=5, reset=True), few)[0] is DeltaOutcome.REFUSED
    small = TreeLimits(max_tree_bytes=4 * ITEM_OVERHEAD_BYTES)
    assert branch.apply(delta(4, 9, 9, "d@8", "e@9"), small)[0] is DeltaOutcome.REFUSED
    assert shown(branch) == {"b": b"2", "c": b"4"}


def test_tombstones_alone_cannot_fill_memory() -> None:
    """A peer that sends nothing but tombstones is refused."""
    few = TreeLimits(max_branch_keys=10, max_tombstones=10)
    gone = [f"-k{number}@{number}" for number in range(1, 30)]
    branch = Branch(1)
    assert branch.apply(delta(0, 29, 29, *gone), few)[0] is DeltaOutcome.REFUSED
    assert branch.apply(delta(0, 9, 9, *gone[:9]), few)[0] is DeltaOutcome.ADVANCED
    branch.bound_tombstones(4)
    assert (len(branch.gone), branch.floor) == (2, 7)
    assert branch.apply(delta(9, 28, 29, *gone[9:28]), few)[0] is DeltaOutcome.STAGED
    assert branch.apply(delta(28, 29, 40, *gone[28:], "-l@29"), few)[0] is DeltaOutcome.REFUSED


def test_a_branch_may_have_all_its_keys_and_all_its_tombstones() -> None:
    """However few keys are allowed, what is told of a branch within its limits is taken."""
    few = TreeLimits(max_branch_keys=2, max_tombstones=10)
    gone = [f"-k{number}@{number}" for number in range(1, 11)]
    assert Branch(1).apply(delta(0, 12, 12, *gone, "a@11", "b@12"), few)[0] is DeltaOutcome.ADVANCED
    branch = Branch(1)
    assert branch.apply(delta(0, 11, 12, *gone, "a@11", reset=True), few)[0] is DeltaOutcome.STAGED
    assert branch.apply(delta(11, 12, 12, "b@12", reset=True), few)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"a": b"11", "b": b"12"}


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_is_not_judged_by_the_limits_of_a_state(reset: bool) -> None:
    """k@3 was published while there was room, and stands before the tombstones that made it."""
    few = TreeLimits(max_branch_keys=2)
    branch = at("a@1", "b@2", version=2)
    before = ["a@1", "b@2"] if reset else []
    start = 0 if reset else 2
    assert branch.apply(delta(start, 4, 7, *before, "k@4", reset=reset), few)[0] is DeltaOutcome.STAGED
    assert branch.apply(delta(4, 7, 7, "-a@5", "-b@6", "l@7", reset=reset), few)[0] is DeltaOutcome.ADVANCED
    assert shown(branch) == {"k": b"4", "l": b"7"}


def test_a_cut_may_take_more_bytes_than_a_state() -> None:
    """What a transfer replaces is still told as tombstones, beside all the keys that came instead."""
    small = TreeLimits(max_tree_bytes=4 * (ITEM_OVERHEAD_BYTES + 2))
    branch = at("a@1", "b@2", version=2)
    assert branch.apply(delta(2, 5, 6, "-a@3", "-b@4", "c@5"), small)[0] is DeltaOutcome.STAGED
    assert branch.staged_bytes > small.max_branch_bytes
    assert branch.apply(delta(5, 6, 6, "d@6", floor=4), small)[0] is DeltaOutcome.ADVANCED  # The owner has none.
    assert (shown(branch), branch.gone) == ({"c": b"5", "d": b"6"}, {})
    assert branch.apply(delta(6, 8, 9, "-c@7", "-d@8"), small)[0] is DeltaOutcome.STAGED
    assert branch.apply(delta(8, 9, 9, "e@9"), small)[0] is DeltaOutcome.REFUSED  # Here its owner has them.


def test_parts_of_a_long_transfer_are_not_counted_anew_with_each() -> None:
    """A part costs what it brings, however much is staged: the keys are counted at the end."""
    branch, counted = Branch(1), 0

    def has_room(more_bytes: int) -> bool:
        nonlocal counted
        counted += more_bytes
        return True

    for number in range(1, 100):
        part = delta(number - 1, number, 100, f"-k{number:03}@{number}", reset=True)
        assert branch.apply(part, LIMITS, has_room)[0] is DeltaOutcome.STAGED
    assert counted == branch.staged_bytes == 99 * (ITEM_OVERHEAD_BYTES + 4)


def test_room_is_asked_for_what_a_branch_grows() -> None:
    """Not for what it replaces, and not at all where there is nothing new; without room it stays as it was."""
    branch, asked = at("a@1", "b@2", version=2), list[int]()

    def has_room(more_bytes: int) -> bool:
        asked.append(more_bytes)
        return more_bytes <= 0

    assert branch.apply(delta(0, 2, 2, "a@1", "b@2"), LIMITS, has_room)[0] is DeltaOutcome.NOTHING
    assert branch.apply(delta(3, 4, 4, "c@4"), LIMITS, has_room)[0] is DeltaOutcome.GAP
    assert not asked
    assert branch.apply(delta(2, 3, 3, "c@3"), LIMITS, has_room)[0] is DeltaOutcome.REFUSED
    assert branch.apply(delta(2, 3, 3, "-a@3"), LIMITS, has_room)[0] is DeltaOutcome.ADVANCED
    assert branch.apply(delta(0, 9, 9, "d@9", floor=8, reset=True), LIMITS, has_room)[0] is DeltaOutcome.ADVANCED
    assert asked == [ITEM_OVERHEAD_BYTES + 2, -1, -ITEM_OVERHEAD_BYTES - 1]
    assert shown(branch) == {"d": b"9"}


def test_an_evicted_branch_comes_back_no_older_than_it_was() -> None:
    """A visible version never falls within an epoch, whatever was forgotten."""
    branch = at("a@1", "b@5", version=5)
    branch.evict()
    assert (shown(branch), branch.version, branch.size_bytes) == ({}, 0, 0)
    assert branch.apply(delta(0, 4, 4, "a@1"), LIMITS)[0] is DeltaOutcome.NOTHING
    assert branch.apply(delta(0, 5, 5, "a@1", "b@5"), LIMITS)[0] is DeltaOutcome.ADVANCED


def test_sizes_are_what_is_kept() -> None:
    """Put, replaced, withdrawn, collected: in the end nothing is left over."""
    branch = Branch(1)
    branch.put("a", b"1")
    branch.put("a", b"two")
    branch.withdraw("a")
    branch.put("a", b"")
    branch.withdraw("a")
    assert branch.size_bytes == ITEM_OVERHEAD_BYTES + 1
    branch.collect(branch.version)
    assert branch.size_bytes == 0
