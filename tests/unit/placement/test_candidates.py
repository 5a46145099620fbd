"""The order in which holders are asked: all of them, in groups."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from tests.oracle import placement as oracle

NAMES = "abcdefgh"


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(HolderState))),
    st.sets(st.sampled_from(NAMES)),
    st.integers(0, 1 << 32),
)
def test_groups_follow_each_other(states: dict[str, HolderState], slow: set[str], seed: int) -> None:
    """ALIVE, SUSPECT, DEAD, then the slow in the same order; no holder is left out, not even the dead (hazard 12)."""
    asked = candidates(states, slow, Random(seed))
    assert sorted(asked) == sorted(states)
    ranks = [oracle.rank(name, states, slow) for name in asked]
    assert ranks == sorted(ranks)
    assert asked == candidates(dict(reversed(states.items())), slow, Random(seed))  # The seed alone decides the order.


def test_each_group_is_shuffled() -> None:
    """Each order of three is about equally frequent, for the living and for the dead."""
    random = Random(1)
    states = {name: HolderState.ALIVE if name in "abc" else HolderState.DEAD for name in "abcdef"}
    drawn = [candidates(states, (), random) for _ in range(6000)]
    for group in (slice(3), slice(3, 6)):
        orders = Counter(tuple(asked[group]) for asked in drawn)
        assert len(orders) == 6
        assert 800 < min(orders.values()) <= max(orders.values()) < 1200
