"""A branch is visible only at states that its owner had, whatever happens to the deltas on their way."""

from __future__ import annotations

import pytest

from gossipkv.gossip.tree.branch import Branch, Outcome
from gossipkv.gossip.tree.chunks import chunks
from tests.unit.gossip.tree.transfers import LIMITS, OWNER, Transfers, deltas, shown

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
            assert outcomes == [Outcome.STAGED] * (cut - whole) + [Outcome.ADVANCED] * whole
