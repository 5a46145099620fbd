"""The radix sort agrees with Python's stable sort."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage._storage import sort_words

WORDS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 3),
    st.sampled_from([number << shift for number in (1, 255, 256) for shift in range(0, 56, 8)]),
)


def expected(words: list[int], first_byte: int) -> list[int]:
    return sorted(range(len(words)), key=lambda place: words[place] >> 8 * first_byte)


@given(words=st.lists(WORDS, max_size=120), first_byte=st.integers(0, 7))
def test_any_words(words: list[int], first_byte: int) -> None:
    assert sort_words(words, first_byte) == expected(words, first_byte)


@pytest.mark.parametrize("first_byte", range(8))
@pytest.mark.parametrize("count", [0, 1, 2, 47, 48, 49, 50, 1000])
def test_around_the_change_of_method(count: int, first_byte: int) -> None:
    """Insertion and counting agree on both sides of the size where one takes over."""
    source = random.Random(count)
    for bits in (1, 9, 64):  # Many equals, an odd number of passes, all passes.
        shift = source.choice([0, 64 - bits])
        words = [source.getrandbits(bits) << shift for _ in range(count)]
        assert sort_words(words, first_byte) == expected(words, first_byte)


def test_each_number_of_passes() -> None:
    """Odd and even numbers of passes end in the right half of the memory."""
    source = random.Random(4)
    for passes in range(9):
        for _ in range(3):
            mask = sum(255 << 8 * byte for byte in source.sample(range(8), passes))
            words = [source.getrandbits(64) & mask for _ in range(200)]
            assert sort_words(words) == expected(words, 0)


@pytest.mark.parametrize("first_byte", [0, 3, 4, 7])
def test_more_than_a_piece(first_byte: int) -> None:
    """High bytes are constant, have few values, or all; equal words keep their order."""
    source = random.Random(first_byte)
    for mask in (2**64 - 1, 0x0000_FF0F_0000_FFFF, 0x0300_0000_0000_0000, 0x0100_0000_00FF_0007):
        words = [source.getrandbits(64) & mask for _ in range(40_000)]
        assert sort_words(words, first_byte) == expected(words, first_byte)


@pytest.mark.parametrize("first_byte", [-1, 8])
def test_refuses_bytes_that_a_word_has_not(first_byte: int) -> None:
    with pytest.raises(ValueError, match="first_byte"):
        sort_words([1], first_byte)
