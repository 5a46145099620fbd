"""Holders of partitions: the bit sets give the same counts as plain sets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.holders import Holders, HolderState
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import Statement
from tests.oracle import placement as oracle

N = 12
IDENTITY = VersionIdentity("geo", "1", "d" * 64, N, "sequins", regrouped=False)
NAMES = "abcdefg"
SOME = st.sets(st.integers(0, N - 1))
MEMBERS = st.dictionaries(st.sampled_from(NAMES), st.tuples(st.sampled_from(list(HolderState)), SOME, SOME))


def said(ready: set[int], building: set[int] | None = None, identity: VersionIdentity = IDENTITY) -> Statement:
    sets = (PartitionSet.of(N, some) for some in (ready, building or set()))
    return Statement(identity, 0, 0, *sets, uuid=bytes(16))


@given(MEMBERS, st.integers(1, 4), st.sets(st.sampled_from(NAMES)))
def test_the_map(members: dict[str, tuple[HolderState, set[int], set[int]]], count: int, who: set[str]) -> None:
    """The holders of each partition, and the partitions with enough holders, are the oracle's."""
    holders = Holders(
        IDENTITY,
        {name: said(ready, building) for name, (_, ready, building) in members.items()},
        {name: state for name, (state, _, _) in members.items()},
    )
    for partition in range(N):
        having = [(state, name) for name, (state, ready, _) in members.items() if partition in ready]
        assert [(each.state, each.name) for each in holders.all if partition in each.ready] == sorted(having)
    asked = [ready for name, (_, ready, _) in members.items() if name in who]
    assert set(holders.at_least(count, who)) == oracle.in_at_least(count, N, asked)
    living = [(ready, building) for state, ready, building in members.values() if state is not HolderState.DEAD]
    enough = oracle.in_at_least(count, N, [ready for ready, _ in living])
    assert set(holders.under_replicated(count)) == set(range(N)) - enough
    assert set(holders.missing) == set(range(N)).difference(*(ready for ready, _ in living))
    assert set(holders.building) == set().union(*(building for _, building in living))


def test_another_identity_holds_nothing() -> None:
    """A member that has left, and so has no state, holds nothing either."""
    alive = dict.fromkeys("ab", HolderState.ALIVE)
    others = (
        replace(IDENTITY, regrouped=True),
        replace(IDENTITY, digest="e" * 64),
        replace(IDENTITY, function="text"),
        replace(IDENTITY, version="2"),
        replace(IDENTITY, database="other"),
    )
    for other in others:
        told = {"a": said({1}), "b": said({0, 1}, identity=other), "left": said({0, 1, 2})}
        holders = Holders(IDENTITY, told, alive)
        assert [holder.name for holder in holders.all] == ["a"]
        assert list(holders.at_least(1, {"a", "b", "left"})) == [1]
