"""A branch is visible only at states that its owner had, whatever happens to the deltas on their way."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, chunks
from gossipkv.gossip.tree.limits import TreeLimits
from tests.unit.gossip.tree.transfers import LIMITS, OWNER, Transfers, any_delta, deltas, recounted_bytes, shown

SEEDS = range(400)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_readers_see_only_what_the_owner_had(first: int) -> None:
    """Cut anywhere, lost, doubled, shuffled, from third parties, collected anywhere: no version but a true one."""
    for seed in SEEDS[first : first + 50]:
        transfers = Transfers(seed)
        for _ in range(300):
            transfers.step()
        transfers.heal()


@pytest.mark.parametrize("collected", [False, True])
def test_cut_at_every_size(collected: bool) -> None:
    """A transfer cut after any byte count leaves the reader where it was, or at the end: nothing between."""
    owner = Branch(1)
    for number in range(30):
        owner.put(f"k/{number % 7}", bytes(number))
        if number % 5 == 4:
            owner.withdraw(f"k/{number % 7}")
    reader_before = Branch(1)
    for delta in deltas(chunks(OWNER, owner, 0, 1400)):
        reader_before.apply(delta, LIMITS)
    then = shown(reader_before)
    for number in range(9):
        owner.put(f"k/{number % 7}", b"new")
        owner.withdraw(f"k/{(number + 1) % 7}")
    if collected:
        owner.collect(owner.version - 2)
    for size in range(64, 400):
        sent = deltas(chunks(OWNER, owner, reader_before.version, size))
        for cut in range(len(sent) + 1):
            reader = Branch(1)
            for delta in deltas(chunks(OWNER, reader_before, 0, 1400)):
                reader.apply(delta, LIMITS)
            outcomes = [reader.apply(delta, LIMITS)[0] for delta in sent[:cut]]
            whole = cut == len(sent)
            assert shown(reader) == (shown(owner) if whole else then)
            assert outcomes == [DeltaOutcome.STAGED] * (cut - whole) + [DeltaOutcome.ADVANCED] * whole


SMALL = TreeLimits(max_branch_keys=3, max_tree_bytes=2 * 4 * 260, max_tombstones=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bytes_break_what_a_branch_promises(seed: int) -> None:
    """Whatever can be read, in any order: no assertion fails, and what is counted is what is there."""
    random = Random(seed)
    limits = random.choice((LIMITS, SMALL))
    branch = Branch(1)
    for _ in range(10):
        try:
            (delta,) = deltas([messages.delta(any_delta(random, OWNER))])
        except Malformed:
            continue
        before = branch.version
        outcome, _ = branch.apply(delta, limits)
        assert (branch.version > before) is (outcome is DeltaOutcome.ADVANCED)
        assert list(branch.gone.values()) == sorted(branch.gone.values())
        assert branch.size_bytes == recounted_bytes(branch)
        branch.bound_tombstones(limits.max_tombstones)
        for known in range(branch.version + 1):
            assert all(chunks(OWNER, branch, known, 80))
