"""The ring against published vectors and against an oracle of its rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.ring import order, share
from tests.oracle import placement as oracle

IDS = st.lists(st.integers(1, 40).map(str) | st.sampled_from(["west-1", "a", "ä"]), max_size=12)


@pytest.mark.parametrize(
    ("ids", "partitions", "replication", "shares"),
    [
        ("1 2 3 4 5", 5, 3, [[0, 1, 3], [0, 2, 3], [0, 2, 4], [1, 2, 4], [1, 3, 4]]),
        ("1 2 3 4 5 6", 5, 3, [[0, 2, 4], [0, 2, 4], [0, 2, 4], [1, 3], [1, 3]]),
        ("1 2 3 4", 5, 2, [[0, 2, 4], [0, 2, 4], [1, 3], [1, 3]]),
        ("2 10", 4, 1, [[1, 3], [0, 2]]),  # "10" sorts before "2".
        ("1 1 2", 4, 1, [[0, 2], [0, 2], [1, 3]]),  # Two nodes with the same id hold the same partitions.
        ("1 2", 3, 5, [[0, 1, 2], [0, 1, 2]]),  # More replicas than ids: each id holds every partition once.
        ("1", 3, 1, [[0, 1, 2]]),
        ("1 2 3 4", 1, 2, [[0], [0], [], []]),
    ],
)
def test_shares(ids: str, partitions: int, replication: int, shares: list[list[int]]) -> None:
    """For six ids, three hold `[0 2 4]` and three `[1 3]`."""
    names = ids.split()
    found = [list(share(reversed(names), mine, partitions, replication)) for mine in names]
    assert found[: len(shares)] == shares
    assert found[len(shares) :] == [[1, 3]] * (len(names) - len(shares))


@given(IDS, st.integers(1, 50), st.integers(1, 14))
def test_shares_are_what_the_rule_says(ids: list[str], partitions: int, replication: int) -> None:
    """The order of the ids makes no difference, and an unknown id holds nothing."""
    for mine in {*ids, "none"}:
        assert set(share(ids, mine, partitions, replication)) == oracle.share(ids, mine, partitions, replication)


@given(IDS, st.integers(1, 20), st.integers(1, 14))
def test_the_order_begins_with_those_that_share(ids: list[str], partitions: int, replication: int) -> None:
    """All other ids follow once each, in ring order."""
    ring = sorted(set(ids))
    for partition in range(partitions):
        found = order(partition, ids, replication)
        sharing = {mine for mine in ring if partition in share(ids, mine, partitions, replication)}
        assert set(found[:replication]) == sharing
        assert sorted(found) == ring
        assert all(ring.index(after) == (ring.index(one) + 1) % len(ring) for one, after in pairwise(found))
