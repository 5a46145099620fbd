"""`refound` replaces a partition whose nodes are all gone, and ends all its assignments."""

from __future__ import annotations

import pytest

from gossipkv.placement.partition import MAX_ENDS, Assignment, ForcedEnd, Partition
from gossipkv.register.metadata.partitions import INVALID, NOT_FOUND, shard_key
from tests.unit.placement.hosted import WHOLE, A, hosted, node
from tests.unit.register.metadata.test_partitions import RANGES, SHARDS, Map

ENDS = ((1, 5), (2, 0), (3, 7))


def test_a_range_begins_anew():
    """The new partition is on one node without former assignments; a repetition is DONE, and the old id is gone."""
    other = hosted(17, (11, 0, A))
    table = Map(RANGES, {b"": WHOLE, b"x": other})
    for _ in range(2):
        assert table.ask("refound", b"", 7, 8, 20, node(4), ENDS, 1) == "DONE"
        new = Partition(8, (Assignment(20, node(4), 0, A),), (), (ForcedEnd(2, 0), ForcedEnd(1, 5), ForcedEnd(3, 7)), 1)
        assert table.partitions == {b"": new, b"x": other}
    assert table.ask("assign", b"", 7, 21, node(5), 1) == NOT_FOUND
    assert table.ask("refound", b"", 7, 9, 22, node(5), ENDS, 0) == NOT_FOUND
    assert table.ask("assign", b"", 8, 21, node(5), 1) == "DONE"


def test_children_begin_with_the_same_copy():
    """The range may be divided before its node hears of it."""
    table = Map(RANGES, {b"": WHOLE})
    assert table.ask("refound", b"", 7, 8, 20, node(4), ENDS, 1) == "DONE"
    assert table.ask("divide", b"", 8, ((b"", 9, (21,)), (b"m", 10, (22,)))) == "DONE"
    assert {(one.id, one.former, one.kept) for one in table.partitions.values()} == {(9, (20,), 1), (10, (20,), 1)}


def test_what_is_former_and_what_was_forced_has_ends_too():
    """The kept copy may have fewer writes than the ends say, and may name ends of its own."""
    table = Map(RANGES, {b"": WHOLE})
    assert table.ask("unassign", b"", 7, 2, version=2) == "DONE"
    assert table.ask("end", b"", 7, ((2, 9),)) == "DONE"
    assert table.ask("refound", b"", 7, 8, 20, node(4), ((1, 5), (3, 7)), 1) == INVALID
    assert "each of its assignments" in table.words
    assert table.ask("refound", b"", 7, 8, 20, node(4), ((1, 5), (2, 4), (3, 7), (40, 6)), 40) == "DONE"
    assert {*table.partitions[b""].ends} == {ForcedEnd(1, 5), ForcedEnd(2, 4), ForcedEnd(3, 7), ForcedEnd(40, 6)}


def test_too_many_ends():
    """Ends at zero are dropped first."""
    table = Map(RANGES, {b"": WHOLE})
    more = tuple((number, 0) for number in range(100, 100 + MAX_ENDS))
    assert table.ask("refound", b"", 7, 8, 20, node(4), ENDS + more, 0) == "DONE"
    ends = table.partitions[b""].ends
    assert (len(ends), {ForcedEnd(1, 5), ForcedEnd(3, 7)} <= {*ends}) == (MAX_ENDS, True)


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("refound takes", (b"", 7, 8, 20, b"node", ENDS, 0)),
        ("refound takes", (b"", 7, -8, 20, node(4), ENDS, 0)),
        ("refound takes", (b"", 7, 8, 20, node(4), ((1, None),), 0)),
        ("refound takes", (b"", 7, 8, 20, node(4), ENDS)),
        ("refound takes", (b"", 7, 8, 20, node(4), ENDS, None)),
        ("a new id is already used", (b"", 7, 7, 20, node(4), ENDS, 0)),
        ("a new id is already used", (b"", 7, 8, 3, node(4), ENDS, 0)),
        ("each of its assignments", (b"", 7, 8, 20, node(4), ENDS[1:], 0)),
    ],
)
def test_what_is_refused(words, argument):
    table = Map(RANGES, {b"": WHOLE})
    assert table.ask("refound", *argument) == INVALID
    assert words in table.words
    assert table.partitions == {b"": WHOLE}


def test_a_shard():
    """A shard keeps its number, and the other shards are unchanged."""
    shards = {shard_key(number): WHOLE._replace(id=7 + number) for number in range(4)}
    table = Map(SHARDS, shards)
    assert table.ask("refound", shard_key(2), 9, 80, 20, node(4), ENDS, 1) == "DONE"
    new = Partition(80, (Assignment(20, node(4), 0, A),), (), (ForcedEnd(2, 0), ForcedEnd(1, 5), ForcedEnd(3, 7)), 1)
    assert table.partitions == {**shards, shard_key(2): new}
