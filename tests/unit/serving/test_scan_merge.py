"""Records of several nodes are merged into one page, and invalid records are refused."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import TooLarge
from gossipkv.keyspace import partitioner
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.serving import _serving
from tests.oracle.scan import merged

KEYS = st.binary(max_size=3) | st.binary(min_size=250, max_size=260)
VALUES = st.binary(max_size=4) | st.binary(min_size=250, max_size=300)
RECORDS = st.lists(st.tuples(KEYS, VALUES, st.integers(0, 3)), unique_by=lambda record: record[0], max_size=40)


def pack(records: list[tuple[bytes, bytes]]) -> bytes:
    packed: bytes = msgpack.packb([list(record) for record in records])
    return packed


def read(
    packed: bytes, at: int, bounds: tuple[bytes | None, bytes | None], limit: int, *, reverse: bool = False
) -> tuple[bytes | None, int]:
    """Read an answer of an owner of all four partitions."""
    asked = (partitioner.code("sequins"), 4, b"\x0f")
    return _serving.read_records(packed, at, *bounds, reverse=reverse, limit=limit, asked=asked)


def joined(runs: list[tuple[bytes, int, bool]], limit: int, max_value: int) -> tuple[bytes, bytes | None]:
    return _serving.merge_runs(runs, reverse=False, limit=limit, max_bytes=1 << 20, max_value=max_value)


@given(
    records=RECORDS,
    more=st.lists(st.booleans(), min_size=4, max_size=4),
    reverse=st.booleans(),
    sizes=st.tuples(st.integers(1, 50), st.integers(1, 2000)),
)
def test_pages_are_those_of_the_oracle(
    records: list[tuple[bytes, bytes, int]], more: list[bool], *, reverse: bool, sizes: tuple[int, int]
) -> None:
    """Merged pages agree with the oracle for any distribution and limits."""
    limit, page_bytes = sizes
    split = [sorted(((k, v) for k, v, at in records if at == number), reverse=reverse) for number in range(4)]
    runs = [(part, bool(part) and has_more) for part, has_more in zip(split, more, strict=True)]
    packed = [(b"head" + pack(part) + b"tail", 4, has_more) for part, has_more in runs]
    page, last = _serving.merge_runs(packed, reverse, limit, page_bytes, 1 << 20)
    found = [tuple(record) for record in msgpack.unpackb(page)]
    wanted, has_more = merged(runs, reverse=reverse, limit=limit, page_bytes=page_bytes)
    assert found == wanted
    assert last == (wanted[-1][0] if has_more else None)


@given(records=RECORDS, reverse=st.booleans(), bounds=st.tuples(st.none() | KEYS, st.none() | KEYS))
def test_what_was_asked_is_read(
    records: list[tuple[bytes, bytes, int]], *, reverse: bool, bounds: tuple[bytes | None, bytes | None]
) -> None:
    """Sorted records within the bounds are accepted, with their number and end; others are refused."""
    start, end = bounds
    some = sorted(((key, value) for key, value, _ in records), reverse=reverse)
    right = [(k, v) for k, v in some if (start is None or k >= start) and (end is None or k < end)]
    packed = pack(right)
    last = right[-1][0] if right else None
    assert read(b"x" + packed + b"y", 1, bounds, len(right), reverse=reverse) == (last, 1 + len(packed))
    wrong = [some] if some != right else []
    wrong += [right[::-1], [right[0], *right]] if len(right) > 1 else []
    for spoilt in wrong:
        with pytest.raises(ValueError, match="keys"):
            read(pack(spoilt), 0, bounds, 100, reverse=reverse)
    if right:
        with pytest.raises(ValueError, match="at most"):
            read(packed, 0, bounds, len(right) - 1, reverse=reverse)


@given(records=RECORDS, count=st.integers(1, 20), function=st.sampled_from(partitioner.FUNCTIONS), bits=st.integers(0))
def test_keys_of_other_partitions_are_refused(
    records: list[tuple[bytes, bytes, int]], count: int, function: str, bits: int
) -> None:
    """A key outside the requested partitions, or without a partition, is refused for any function."""
    some = sorted((key, value) for key, value, _ in records)
    asked = PartitionSet.of(count, (p for p in range(count) if bits >> p & 1))
    code = partitioner.code(function)
    is_right = all(home(function, key, count) in asked for key, _ in some)
    try:
        _serving.read_records(
            pack(some), 0, None, None, reverse=False, limit=100, asked=(code, count, asked.to_bytes())
        )
    except ValueError as error:
        assert not is_right
        assert "partition" in str(error)
    else:
        assert is_right


def home(function: str, key: bytes, count: int) -> int:
    try:
        return partitioner.partition(function, key, count)
    except ValueError:
        return -1


@given(data=st.binary(max_size=40) | st.binary(max_size=10).map(lambda more: b"\x92\x92\xc4\x01a\xc4\x01b\x92" + more))
def test_bytes_of_a_liar(data: bytes) -> None:
    """Random bytes are refused or read by msgpack's rules, and never beyond their end."""
    try:
        last, behind = read(data, 0, (None, None), 100)
    except ValueError:
        return
    found = msgpack.unpackb(data[:behind])
    assert last == (found[-1][0] if found else None)
    assert all(type(key) is type(value) is bytes for key, value in found)
    page, _ = joined([(data, 0, False)], 100, 1 << 20)
    assert msgpack.unpackb(page) == found


def test_what_cannot_be_merged() -> None:
    """Equal keys, truncated runs and runs outside the buffer are refused."""
    run = (pack([(b"a", b"1")]), 0, False)
    for runs in ([run, run], [(run[0][:-1], 0, False)], [(run[0], 100, False)], [(run[0], -1, False)]):
        with pytest.raises(ValueError, match=r"same key|a record must be|the position is outside"):
            joined(runs, 10, 100)
    with pytest.raises(ValueError, match="the position is outside"):
        read(run[0], 100, (None, None), 1)
    with pytest.raises(IndexError, match="bitmap"):
        _serving.read_records(run[0], 0, None, None, reverse=False, limit=1, asked=(0, 9, b"\xff"))


def test_a_value_that_is_too_long() -> None:
    """The page ends before the value, which is an error in the first place."""
    runs = [(pack([(b"a", b"1"), (b"b", b"long")]), 0, False), (pack([(b"c", b"3")]), 0, False)]
    assert joined(runs, 10, 3) == (pack([(b"a", b"1")]), b"a")
    with pytest.raises(TooLarge) as caught:
        joined([(pack([(b"b", b"long")]), 0, False)], 10, 3)
    assert caught.value.details == {"limit": 3, "size": 4}
