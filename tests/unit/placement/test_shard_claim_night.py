"""Many claims at the same instant."""

from __future__ import annotations

import pytest

from gossipkv.placement.shard_claim import Firmness
from tests.unit.gossip.tree.linked import Link
from tests.unit.placement.test_shard_claim import SETTLE_MS, cluster, ids, spread


@pytest.mark.parametrize(("size", "seeds"), [(3, 20), (8, 5), (40, 1)])
def test_many_at_the_same_instant(size: int, seeds: int) -> None:
    """The nodes get exactly the first numbers, without a round for each number."""
    for seed in range(seeds):
        link = Link(seed)
        claimers = cluster(link, *(f"n{seed}-{number}" for number in range(size)))
        for one in claimers:
            one.step()
        spread(claimers, 6000)
        assert ids(claimers) == [str(number) for number in range(1, size + 1)]
        spread(claimers, SETTLE_MS)
        assert all(one.claim.firmness is Firmness.CONFIRMED for one in claimers)
