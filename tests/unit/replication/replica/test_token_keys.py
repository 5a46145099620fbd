"""Seals of tokens: SipHash against its published sums and an oracle; keys of a ring, and keys that are not here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication.replica.token_keys import SEAL_BYTES, siphash, token_keys
from tests.oracle.siphash import siphash128
from tests.oracle.token import RING, sealed

CLUSTER = b"cluster." * 2
OLD, NEW = (b"old.", b"1" * 32), (b"new.", b"2" * 32)

# `vectors_sip128` of the reference implementation: key 00 to 0f, data of the bytes 00, 01, ... of that length.
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    3: "9c70b60c5267a94e5f33b6b02985ed51",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_published_sums(size):
    key, data = bytes(range(16)), bytes(range(size))
    assert siphash(key, data).hex() == siphash128(key, data).hex() == PUBLISHED[size]


@given(key=st.binary(min_size=16, max_size=16), data=st.binary(max_size=600))
def test_any_sum_is_that_of_the_oracle(key, data):
    assert siphash(key, data) == siphash128(key, data)


@given(token=st.binary(max_size=100))
def test_a_seal_is_that_of_the_oracle(token):
    assert token_keys(CLUSTER, RING).seal(token) == sealed(token, CLUSTER)


def test_the_first_key_seals_and_each_verifies():
    before, both = token_keys(CLUSTER, [OLD]), [token_keys(CLUSTER, ring) for ring in ([OLD, NEW], [NEW, OLD])]
    after = token_keys(CLUSTER, [NEW])
    assert [keys.seal(b"t") == before.seal(b"t") for keys in both] == [True, False]
    for keys in (before, *both):
        assert keys.is_sealed(before.seal(b"t"))
        assert not keys.lacks_key(before.seal(b"t"))
    assert not after.is_sealed(before.seal(b"t"))
    assert after.lacks_key(before.seal(b"t"))


@given(token=st.binary(min_size=1, max_size=60), data=st.data())
def test_a_changed_token_is_neither_sealed_nor_of_a_missing_key(token, data):
    keys = token_keys(CLUSTER, [NEW])
    whole = bytearray(keys.seal(token))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert not keys.is_sealed(bytes(whole))
    assert not keys.lacks_key(bytes(whole))
    assert not keys.is_sealed(bytes(whole[: data.draw(st.integers(0, SEAL_BYTES))]))


def test_a_token_of_another_cluster_with_the_same_ring_is_foreign():
    keys, others = token_keys(CLUSTER, RING), token_keys(bytes(16), RING)
    assert not keys.is_sealed(others.seal(b"t"))
    assert not keys.lacks_key(others.seal(b"t"))


def test_wrong_keys_are_refused():
    for keys in ([], [NEW] * 17, [(b"id", b"")]):
        with pytest.raises(ValueError, match="key"):
            token_keys(CLUSTER, keys)
    with pytest.raises(ValueError, match="16 bytes"):
        siphash(b"short", b"")


@given(tokens=st.lists(st.sampled_from([b"12345a", b"12345b", b"123456" * 10, b"123456" * 11, b""]), max_size=30))
def test_repeated_tokens_have_the_seals_of_their_own_keys(tokens):
    """Short tokens are remembered for each table, by their bytes and their key."""
    all_keys = [token_keys(CLUSTER, ring) for ring in ([OLD], [NEW])]
    for number, token in enumerate(tokens):
        one, other = all_keys[number % 2], all_keys[(number + 1) % 2]
        whole = one.seal(token)
        assert (one.is_sealed(whole), other.is_sealed(whole)) == (True, False)
        assert one.is_sealed(whole)
