"""Sets of partitions against sets of whole numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.partition_set import PartitionSet, in_at_least
from tests.oracle import placement as oracle


@st.composite
def alike(draw: st.DrawFn, most: int = 5) -> tuple[int, list[set[int]]]:
    """Draw a number of partitions and some sets of them."""
    partitions = draw(st.integers(1, 70))
    return partitions, draw(st.lists(st.sets(st.integers(0, partitions - 1)), min_size=2, max_size=most))


@given(alike())
def test_it_is_a_set(drawn: tuple[int, list[set[int]]]) -> None:
    partitions, (one, two, *_) = drawn
    first, second = PartitionSet.of(partitions, one), PartitionSet.of(partitions, list(two) * 2)
    assert list(first) == sorted(one)
    assert len(first) == len(one)
    assert bool(first) is bool(one)
    assert {number for number in range(-2, partitions + 2) if number in first} == one
    assert set(first | second) == one | two
    assert set(first & second) == one & two
    assert set(first - second) == one - two
    assert first.bits == sum(1 << number for number in one)
    assert (first == second) is (one == two)
    assert {number for start, end in first.runs() for number in range(start, end)} == one
    assert all(end < start for (_, end), (start, _) in pairwise(first.runs()))
    assert (PartitionSet.whole(partitions) - first) | first == PartitionSet.whole(partitions)
    assert PartitionSet.empty(partitions) | first == first


@given(alike(most=7), st.integers(0, 8))
def test_what_enough_sets_have(drawn: tuple[int, list[set[int]]], count: int) -> None:
    partitions, sets = drawn
    found = in_at_least(count, partitions, [PartitionSet.of(partitions, some) for some in sets])
    assert set(found) == oracle.in_at_least(count, partitions, sets)
    assert in_at_least(1, partitions, []) == PartitionSet.empty(partitions)


@given(alike())
def test_its_bitmap(drawn: tuple[int, list[set[int]]]) -> None:
    """The bitmap is little-endian and has ceil(N / 8) bytes."""
    partitions, (one, *_) = drawn
    bitmap = PartitionSet.of(partitions, one).to_bytes()
    assert len(bitmap) == -(-partitions // 8)
    assert {number for number in range(8 * len(bitmap)) if bitmap[number // 8] >> number % 8 & 1} == one
    assert PartitionSet.from_bytes(partitions, bitmap) == PartitionSet.of(partitions, one)
    assert PartitionSet.from_bytes(partitions, bitmap.rstrip(b"\0")) == PartitionSet.of(partitions, one)


@given(st.integers(1, 70), st.binary(max_size=12))
def test_any_bytes_are_a_bitmap_or_refused(partitions: int, bitmap: bytes) -> None:
    """An accepted bitmap names no partition beyond the last."""
    try:
        found = PartitionSet.from_bytes(partitions, bitmap)
    except ValueError:
        assert len(bitmap) > -(-partitions // 8) or int.from_bytes(bitmap, "little") >> partitions
    else:
        assert all(number < partitions for number in found)


def test_it_is_shown_short() -> None:
    """The text stays short for any number of partitions, because assertions print it."""
    assert repr(PartitionSet.of(20, [1, 2, 3, 7])) == "<1-3,7 of 20 partitions>"
    assert repr(PartitionSet.of(65_536, range(0, 65_536, 2))) == "<0,2,4,6,8,10,12,14,... of 65536 partitions>"
    assert repr(PartitionSet.empty(3)) == "<none of 3 partitions>"


def test_a_defect_is_caught() -> None:
    for wrong in (-1, 8):
        with pytest.raises(AssertionError):
            PartitionSet.of(8, [wrong])
    with pytest.raises(AssertionError):
        PartitionSet(8, 1 << 8)
    with pytest.raises(AssertionError):
        PartitionSet.whole(8) | PartitionSet.whole(9)


def test_is_told_in_words():
    some = PartitionSet.of(20, [0, 1, 2, 7, 9, 10])
    assert some.in_words(3) == some.in_words(9) == "0-2,7,9-10"
    assert some.in_words(2) == "0-2,7 and 2 more"
    assert PartitionSet.of(65_536, range(0, 65_536, 2)).in_words(2) == "0,2 and 32,766 more"
    assert PartitionSet.empty(3).in_words(2) == ""
