"""The partition functions from Python: against the oracle, against published answers, and with wrong arguments."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.keyspace import partitioner
from tests.oracle import hashing as oracle

HASHES = {name: partitioner.hash_function(name) for name in partitioner.FUNCTIONS}
NEEDS_TEXT = ("string", "spark", "cascading")

texts = st.text(max_size=100).map(str.encode)
# Damaged text: most of it decodes, so the fault is met in every state of the decoder.
damaged = st.builds(
    lambda text, at, byte: text[: at % (len(text) + 1)] + byte + text[at % (len(text) + 1) + 1 :],
    texts,
    st.integers(0, 400),
    st.binary(max_size=2),
)
keys = st.binary(max_size=300) | texts | damaged
counts = st.integers(1, 4096) | st.integers(2**31 - 2, 2**32 + 2) | st.integers(1, 2**63 - 1)


def near(number: int) -> st.SearchStrategy[bytes]:
    """Draw seven ASCII letters with the Java hash `number` (its digits to base 31, each from 64 up), or a few less."""

    def spelt(less: int) -> bytes:
        rest = (number - less - 64 * (31**7 - 1) // 30) % 2**32
        return bytes(64 + rest // 31**place % 31 for place in range(6, -1, -1))

    return st.integers(0, 70).map(spelt)


@pytest.mark.parametrize("name", partitioner.FUNCTIONS)
@settings(max_examples=settings.default.max_examples * 4)
@given(key=keys, count=counts)
def test_hash_and_partition_are_the_oracle_s(name: str, key: bytes, count: int) -> None:
    """Any key of 0 to 300 bytes and any count: the same hash and partition, or both refuse at the same byte."""
    try:
        expected = oracle.HASHES[name](key)
    except UnicodeDecodeError as refusal:
        for ask in (lambda: HASHES[name](key), lambda: partitioner.partition(name, key, count)):
            with pytest.raises(ValueError, match=rf"not UTF-8 at byte {refusal.start} \(0x{key[refusal.start]:02x}\)"):
                ask()
        return
    assert HASHES[name](key) == expected
    assert partitioner.partition(name, key, count) == oracle.partition(name, key, count)


@pytest.mark.parametrize("name", partitioner.FUNCTIONS)
@settings(max_examples=settings.default.max_examples)
@given(key=near(2**31 + 30) | near(31) | near(2**31 - 1), count=counts)
def test_partitions_where_the_hash_changes_sign(name: str, key: bytes, count: int) -> None:
    """Masking, wrapping and floor-mod part ways around 0 and around 2**31."""
    assert partitioner.partition(name, key, count) == oracle.partition(name, key, count)
    assert partitioner.sequins_alternate(key, count) == oracle.sequins_alternate(key, count)


@pytest.mark.parametrize("name", partitioner.FUNCTIONS)
def test_every_count_to_4096(name: str) -> None:
    signs = {HASHES[name](key) < 0 for key in (b"foo bar baz", b"foobarbaz", b"polygenelubricants")}
    assert signs == {False, True}
    for key in (b"foo bar baz", b"foobarbaz", b"polygenelubricants"):
        for count in range(1, 4097):
            assert partitioner.partition(name, key, count) == oracle.partition(name, key, count)


@settings(max_examples=settings.default.max_examples * 4)
@given(key=keys, count=counts)
def test_alternate_is_the_oracle_s(key: bytes, count: int) -> None:
    assert partitioner.sequins_alternate(key, count) == oracle.sequins_alternate(key, count)


@settings(max_examples=settings.default.max_examples * 4)
@given(key=keys, seed=st.just(0) | st.integers(0, 2**32 - 1))
def test_murmur3_is_the_oracle_s(key: bytes, seed: int) -> None:
    assert partitioner.murmur3_32(key, seed) == oracle.murmur3_32(key, seed)
    assert partitioner.murmur3_32(key) == oracle.murmur3_32(key)


def test_sha1_is_openssl_s() -> None:
    """The lengths cover every turn of the padding, and the longest key."""
    for size in (*range(301), 4095, 4096, 65535):
        key = bytes(at * 167 % 256 for at in range(size))
        assert partitioner.sha1(key) == oracle.sha1(key), size


def test_published_answers() -> None:
    """The vectors come from Sequins' own tests."""
    assert partitioner.sequins_hash(b"foo bar baz") == 1892173108
    assert partitioner.sequins_hash(b"foobarbaz") == -1165917330
    assert partitioner.sequins_hash(b"The quick brown fox jumped over the lazy dog") == 1953395701
    both = {
        key: (partitioner.partition("sequins", key, 20), partitioner.sequins_alternate(key, 20))
        for key in (b"bar", b"fol", bytes.fromhex("7017ad788c5e85f14327f867"))
    }
    assert list(both.values()) == [(19, 19), (11, 11), (19, 11)]


def test_alternate_is_where_cascading_s_file_is() -> None:
    """A file that Cascading filled is one Sequins partition, alternates included, except for 31 hashes."""
    count = 20
    for h in (*range(-2000, -31), *range(2000), *range(2**31 - 2000, 2**31)):
        rest = (h - 64 * (31**7 - 1) // 30) % 2**32
        key = bytes(64 + rest // 31**place % 31 for place in range(6, -1, -1))
        assert partitioner.sequins_hash(key) == h
        expected = (partitioner.partition("cascading", key, count) - 31) % count
        assert expected == partitioner.sequins_alternate(key, count)


def test_codes_are_places() -> None:
    """The serving loop's codes follow the order in which functions are tried."""
    assert partitioner.FUNCTIONS == ("sequins", "text", "string", "spark", "cascading")
    assert [partitioner.code(name) for name in partitioner.FUNCTIONS] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ask", [partitioner.code, partitioner.hash_function])
@pytest.mark.parametrize("name", ["", "Sequins", "murmur3"])
def test_unknown_name_lists_the_known(ask: object, name: str) -> None:
    assert callable(ask)
    with pytest.raises(ValueError, match=rf"{name!r}; known functions are sequins, text, string, spark, cascading$"):
        ask(name)
    with pytest.raises(ValueError, match="known functions are"):
        partitioner.partition(name, b"", 1)


@pytest.mark.parametrize("key", ["text", bytearray(b"x"), memoryview(b"x"), None, 7])
def test_key_that_is_not_bytes(key: bytes) -> None:
    asks = [
        *HASHES.values(),
        partitioner.murmur3_32,
        partitioner.sha1,
        lambda key: partitioner.sequins_alternate(key, 2),
    ]
    asks += [lambda key, name=name: partitioner.partition(name, key, 2) for name in partitioner.FUNCTIONS]
    for ask in asks:
        with pytest.raises(TypeError, match=f"bytes, got {type(key).__name__}|must not be None"):
            ask(key)


@pytest.mark.parametrize("count", [0, -1, -(2**63), -(2**63) - 1, 2**63, 2**200])
def test_count_out_of_range(count: int) -> None:
    for name in partitioner.FUNCTIONS:
        with pytest.raises(ValueError, match=f"partition count must be from 1 to [0-9]+, got {count}$"):
            partitioner.partition(name, b"k", count)
    with pytest.raises(ValueError, match=f"got {count}$"):
        partitioner.sequins_alternate(b"k", count)


@pytest.mark.parametrize("count", [1.0, "3", None])
def test_count_that_is_no_integer(count: int) -> None:
    with pytest.raises(TypeError):
        partitioner.partition("text", b"k", count)
    with pytest.raises(TypeError):
        partitioner.sequins_alternate(b"k", count)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70])
def test_seed_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match=f"from 0 to 4294967295, got {seed}$"):
        partitioner.murmur3_32(b"k", seed)


def test_key_that_is_not_text() -> None:
    """The refusal names the byte, shows the key's beginning, and lists the functions that accept it."""
    key = b"caf\xe9" + b"x" * 100
    for name in NEEDS_TEXT:
        with pytest.raises(ValueError, match=r"byte 3 \(0xe9\), in b'caf\\xe9x+'\.\.\.; only sequins and text"):
            partitioner.partition(name, key, 4)
    assert partitioner.partition("sequins", key, 4) == oracle.partition("sequins", key, 4)


def test_documented_table_is_this_one() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "users", "keyspace.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")]
    assert tuple(rows) == partitioner.FUNCTIONS


def test_oracle_s_sha1_is_sha1() -> None:
    """The example is the standard's own (FIPS 180, appendix A.1)."""
    assert oracle.sha1(b"abc").hex() == "a9993e364706816aba3e25717850c26c9cd0d89d"
    assert hashlib.new("sha1", b"abc", usedforsecurity=False).digest() == partitioner.sha1(b"abc")
