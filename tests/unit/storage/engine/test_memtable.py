"""The memtable agrees with a dict for every order of keys, both directions, and counts its memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine._engine import Memtable
from tests.oracle import memtable as oracle
from tests.oracle.memtable import DROPPED_SPACE, NEW_SPACE, TOMBSTONE, VALUE, encode, internal
from tests.unit.storage.records import KEYS

MIB = 1 << 20
MAX_KEY_BYTES = 65_531
MAX_VALUE_BYTES = 16 << 20
SPACES = st.sampled_from([0, 1, 2, 0x01000000, 0xFFFFFFFF])
OPERATIONS = st.one_of(
    st.tuples(st.just(VALUE), SPACES, KEYS, st.binary(max_size=20)),
    st.tuples(st.just(TOMBSTONE), SPACES, KEYS, st.just(b"")),
    st.tuples(st.sampled_from([NEW_SPACE, DROPPED_SPACE]), SPACES, st.just(b""), st.just(b"")),
)
BATCHES = st.lists(st.lists(OPERATIONS, max_size=30).map(encode), max_size=12)
ORDERS = ["random", "ascending", "descending", "ascending then descending", "outside in"]


def made(*batches: bytes, most_bytes: int = MIB) -> tuple[Memtable, oracle.Memtable]:
    """Return a memtable and its oracle with the same batches."""
    memtable, expected = Memtable(most_bytes), oracle.Memtable()
    for batch in batches:
        memtable.apply(batch)
        expected.apply(batch)
    return memtable, expected


def check(memtable: Memtable, expected: oracle.Memtable, bounds: list[bytes]) -> None:
    """Check all records, one by one, and from each bound in both directions."""
    assert memtable.records == len(expected.contents)
    for reverse in (False, True):
        assert memtable.list_records(reverse=reverse) == expected.list_records(reverse=reverse)
        for bound in bounds:
            assert memtable.list_records(bound, reverse=reverse) == expected.list_records(bound, reverse=reverse)
    for key in {*expected.contents, *bounds}:
        assert memtable.find_record(key) == expected.contents.get(key)


def in_order(order: str, count: int) -> list[int]:
    """Return the numbers below `count`, in the order in which they are put."""
    numbers = list(range(count))
    if order == "random":
        random.Random(count).shuffle(numbers)
    elif order == "descending":
        numbers.reverse()
    elif order == "ascending then descending":
        numbers = numbers[:4096] + numbers[4096:][::-1]  # The last leaf is full when the order turns.
    elif order == "outside in":
        numbers = [number for pair in zip(numbers, reversed(numbers), strict=True) for number in pair][:count]
    return numbers


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@given(BATCHES, st.lists(st.tuples(SPACES, KEYS), max_size=5))
def test_batches_of_any_operations(batches: list[bytes], bounds: list[tuple[int, bytes]]) -> None:
    """The last put of a key counts, tombstones are records, and operations on spaces are ignored."""
    memtable, expected = made(*batches)
    check(memtable, expected, [b"", *(internal(*bound) for bound in bounds)])


@pytest.mark.parametrize("order", ORDERS)
def test_memory_is_counted_and_bounded(order: str) -> None:
    """Each put is counted, even of a replaced record, and the tree's overhead per record is bounded."""
    memtable, expected = made()
    for number in in_order(order, 20_000):
        before = memtable.bytes_used
        batch = encode([(VALUE, 1, b"%08d" % number, b"v" * 30)])
        memtable.apply(batch)
        expected.apply(batch)
        assert memtable.bytes_used >= before + 6 + 12 + 31
    assert expected.put_bytes < memtable.bytes_used < expected.put_bytes + 20_000 * 52 + 64 * 1024
    memtable.apply(encode([(VALUE, 1, b"%08d" % 7, b"w" * 30)]))
    assert memtable.records == 20_000


def test_an_empty_memtable() -> None:
    memtable, expected = made()
    check(memtable, expected, [b"", b"a"])
    assert 0 < memtable.bytes_used < 64 * 1024
    assert Memtable(64 * MIB).bytes_used == pytest.approx(2 * MIB, rel=0.01), "the filter has its size from the start"


def test_records_at_the_limits() -> None:
    """Long records have memory of their own, beside short ones."""
    longest = b"k" * MAX_KEY_BYTES
    large = bytes(range(256)) * (MAX_VALUE_BYTES // 256)
    operations = [
        (VALUE, 5, longest, b""),
        (VALUE, 5, longest[:-1], b"one byte less"),
        (VALUE, 5, b"", large),
        (VALUE, 4, b"x", large[: 256 * 1024]),
        (TOMBSTONE, 6, longest, b""),
        (VALUE, 0xFFFFFFFF, longest, b"v" * 70_000),
    ]
    memtable, expected = made(*(encode([operation]) for operation in operations))
    check(memtable, expected, [internal(5, longest), internal(5, b""), internal(6, b"")])
    assert memtable.bytes_used > expected.put_bytes


def test_a_payload_that_is_none_changes_nothing() -> None:
    """A payload that is cut or has a wrong header byte is refused as a whole."""
    whole = encode([(VALUE, 1, b"a", b"first"), (TOMBSTONE, 1, b"b", b""), (VALUE, 1, b"c", b"")])
    ends = {0, 7 + 5 + 5, 7 + 5 + 5 + 7 + 5, len(whole)}
    for size in range(len(whole) + 1):
        memtable, expected = made()
        if size in ends:
            memtable.apply(whole[:size])
            expected.apply(whole[:size])
        else:
            with pytest.raises(ValueError, match="has an invalid operation"):
                memtable.apply(whole[:size])
        check(memtable, expected, [])
    for at, byte in ((0, 0), (0, 5), (1, 3), (2, 1), (6, 1), (17, 9), (20, 1)):
        memtable, expected = made()
        with pytest.raises(ValueError, match="has an invalid operation"):
            memtable.apply(whole[:at] + bytes([byte]) + whole[at + 1 :])
        check(memtable, expected, [internal(1, b"a")])


def test_memory_goes_back_to_the_system() -> None:
    before = resident_bytes()
    memtable = Memtable(64 * MIB)
    for number in range(48):
        memtable.apply(encode([(VALUE, 1, b"%d" % number, b"v" * MIB)]))
        memtable.apply(encode((VALUE, 2, b"%d %d" % (number, other), b"v" * 100) for other in range(2_000)))
    held = resident_bytes()
    assert held - before > 60 * MIB
    del memtable
    assert resident_bytes() < held - 56 * MIB
