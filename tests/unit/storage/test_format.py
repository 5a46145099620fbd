"""The hash of the index in C follows the document's steps."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage._storage import hash64
from tests.oracle import sorted_file as oracle

SEEDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, oracle.K0, oracle.K1, oracle.K2, oracle.K3]))
SPECIAL_WORDS = [word.to_bytes(8, "little") for word in (0, 2**64 - 1, oracle.K0, oracle.K1, oracle.K2, oracle.K3)]


def test_every_length() -> None:
    """The lengths reach through several rounds of the loop, up to the longest key."""
    data = random.Random(3).randbytes(65_535)
    for size in [*range(200), 4096, 65_534, 65_535]:
        for seed in (0, 0x0123456789ABCDEF, 2**64 - 1):
            assert hash64(data[:size], seed) == oracle.hash64(data[:size], seed)


@given(key=st.binary(max_size=100), seed=SEEDS)
def test_any_key_and_seed(key: bytes, seed: int) -> None:
    assert hash64(key, seed) == oracle.hash64(key, seed)


@given(words=st.lists(st.sampled_from(SPECIAL_WORDS), max_size=5), tail=st.binary(max_size=7), seed=SEEDS)
def test_words_that_cancel_constants(words: list[bytes], tail: bytes, seed: int) -> None:
    """Keys made of the constants turn factors into zero."""
    key = b"".join(words) + tail
    assert hash64(key, seed) == oracle.hash64(key, seed)


@pytest.mark.parametrize("start", [b"user:", SPECIAL_WORDS[3]], ids=["plain", "a factor of zero"])
def test_spreads(start: bytes) -> None:
    """No bit of the high half or of the fingerprint is biased, even if the first word cancels a constant."""
    keys = [start + b"%016d" % number for number in range(4096)]
    hashes = [hash64(key) for key in keys]
    assert len({number >> 32 for number in hashes}) > 4090
    for bit in [*range(8), *range(32, 64)]:
        ones = sum(number >> bit & 1 for number in hashes)
        assert 1850 < ones < 2250  # Six standard deviations.
    buckets = Counter(oracle.home(number, 380) for number in hashes)
    assert len(buckets) == 380
    assert max(buckets.values()) < 35


def test_refuses_what_is_no_key() -> None:
    for wrong in ("text", None, bytearray(b"x")):
        with pytest.raises(TypeError):
            hash64(wrong)
    for seed in (-1, 2**64):
        with pytest.raises(OverflowError):
            hash64(b"", seed)
