"""A branch shows only states that its owner had, whatever happens to the deltas on their way."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, chunks
from gossipkv.gossip.tree.limits import item_bytes
from tests.unit.gossip.tree.transfers import MOST, OWNER, Transfers, any_delta, recounted_bytes, shown, whole

SEEDS = range(50)


def test_readers_see_only_what_the_owner_had() -> None:
    """Under cuts, loss, doubling, shuffling, third parties and collection, readers see only true versions."""
    for seed in SEEDS:
        transfers = Transfers(seed)
        for _ in range(300):
            transfers.step()
        transfers.heal()


@pytest.mark.parametrize("collected", [False, True])
def test_cut_at_every_size(collected: bool) -> None:
    """A cut message leaves the reader at the old version or at the end, and nothing between."""
    owner = Branch(1)
    for number in range(30):
        owner.put(f"k/{number % 7}", bytes(number))
        if number % 5 == 4:
            owner.withdraw(f"k/{number % 7}")
    reader_before = Branch(1)
    for delta in whole(chunks(OWNER, owner, 0, 1400)):
        reader_before.apply(delta, MOST)
    then = shown(reader_before)
    for number in range(9):
        owner.put(f"k/{number % 7}", b"new")
        owner.withdraw(f"k/{(number + 1) % 7}")
    if collected:
        owner.collect(owner.version - 2)
    for size in range(64, 400):
        sent = list(chunks(OWNER, owner, reader_before.version, size))
        for cut in range(len(sent) + 1):
            reader = Branch(1)
            for delta in whole(chunks(OWNER, reader_before, 0, 1400)):
                reader.apply(delta, MOST)
            outcomes = [reader.apply(delta, MOST)[0] for delta in whole(sent[:cut])]
            arrived = cut == len(sent)
            assert shown(reader) == (shown(owner) if arrived else then)
            assert outcomes == [DeltaOutcome.ADVANCED if arrived else DeltaOutcome.GAP] * bool(cut)


@pytest.mark.parametrize("most_bytes", [MOST, 4 * 260])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_bytes_break_what_a_branch_promises(seed: int, most_bytes: int) -> None:
    """For any readable deltas in any order no assertion fails, sizes match a recount, and they are bounded."""
    random = Random(seed)
    branch = Branch(1)
    for _ in range(10):
        try:
            sent = whole([messages.delta(any_delta(random, OWNER)) for _ in range(random.choice((1, 2)))])
        except Malformed:
            continue
        for delta in sent:
            before = branch.version
            outcome, _ = branch.apply(delta, most_bytes)
            assert (branch.version > before) is (outcome is DeltaOutcome.ADVANCED)
            assert list(branch.gone.values()) == sorted(branch.gone.values())
            assert branch.size_bytes == recounted_bytes(branch) <= most_bytes
        for known in range(branch.version + 1):
            assert all(chunks(OWNER, branch, known, 80))


@pytest.mark.parametrize("seed", range(10))
def test_what_an_owner_may_publish_is_taken_by_everybody(seed: int) -> None:
    """No delta of a full branch is refused, whatever a reader missed and from whichever node it comes."""
    random, most_bytes = Random(seed), 8 * 260
    owner, readers = Branch(1), [Branch(1) for _ in range(3)]
    for _ in range(200):
        path = f"k/{random.randrange(30)}"
        if path in owner.live:
            owner.withdraw(path)
        elif owner.live_bytes + item_bytes(path, b"") <= most_bytes:
            owner.put(path, b"")
            owner.fit(most_bytes)
        teller, reader = random.choice([owner, *readers]), random.choice(readers)
        for delta in whole(chunks(OWNER, teller, random.choice((0, reader.version)), 100)):
            assert reader.apply(delta, most_bytes)[0] is not DeltaOutcome.REFUSED
            assert reader.size_bytes == recounted_bytes(reader) <= most_bytes
    for reader in readers:
        for delta in whole(chunks(OWNER, owner, reader.version, 100)):
            assert reader.apply(delta, most_bytes)[0] is DeltaOutcome.ADVANCED
        assert shown(reader) == shown(owner)
    assert owner.floor
