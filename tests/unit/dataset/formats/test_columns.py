"""Arrow's layout against an oracle: every offset and index is checked before its use."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.formats._formats import Column, fill_columns
from gossipkv.storage.batch import RecordBatch
from tests.oracle import columns as oracle

LIMIT = 1 << 20
CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


def packed(numbers, size):
    return struct.pack(f"<{len(numbers)}{CODES[size]}", *numbers)


def rows(keys, values=None):
    """Return the records of two columns, and the row where filling ended."""
    batch = RecordBatch()
    end = fill_columns(batch, keys, keys if values is None else values, 0, LIMIT, 7)
    assert batch.offsets() == [7] * end
    return [key for key, _ in batch], end


NUMBERS = st.lists(st.integers(-2, 12), min_size=1, max_size=8)


@given(st.binary(max_size=10), NUMBERS, st.sampled_from([4, 8]), st.integers(0, 2))
def test_offsets(data, numbers, size, first):
    """With offsets of either size, values are read up to the first that leaves the data."""
    offsets = packed(numbers, size)
    count = len(numbers) - 1 - first
    if count < 0:
        with pytest.raises(ValueError, match=r"fewer offsets|is negative, or the"):
            Column(data, max(1, count), first=first, offsets=offsets[:-1], offset_bytes=size)
        return
    expected = []
    for number in range(count):
        try:
            expected += oracle.values(data, offsets, size, 0, range(first + number, first + number + 1))
        except IndexError:
            break
    column = Column(data, count, first=first, offsets=offsets, offset_bytes=size)
    assert rows(column) == (expected, len(expected))
    if len(expected) < count:
        assert column.size_of(len(expected)) is None
    assert [column.size_of(row) for row in range(len(expected))] == [len(value) for value in expected]
    assert column.longest() >= max(map(len, expected), default=0)


@given(st.lists(st.binary(max_size=3), max_size=6), st.lists(st.integers(-2, 7), max_size=8), st.data())
def test_indices(values, numbers, data):
    """With indices of every size, a negative or too large index ends the reading."""
    size = data.draw(st.sampled_from([1, 2, 4, 8]))
    first = data.draw(st.integers(0, len(numbers)))
    ends = [0, *(sum(map(len, values[: i + 1])) for i in range(len(values)))]
    held = Column(b"".join(values), len(values), offsets=packed(ends, 4))
    indices = packed(numbers, size)
    count = len(numbers) - first
    expected = []
    for number in range(count):
        try:
            expected += oracle.chosen(values, indices, size, first + number, 1)
        except IndexError:
            break
    assert rows(held.chosen(indices, size, first=first, count=count)) == (expected, len(expected))


@given(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4))
def test_values_of_one_size(width, first, count):
    """Values may be empty; missing bytes are refused."""
    data = bytes(range(width * (first + count)))
    column = Column(data, count, first=first, width=width)
    assert rows(column)[0] == oracle.values(data, None, 4, width, range(first, first + count))
    if width and first + count:
        with pytest.raises(ValueError, match="fewer bytes"):
            Column(data[:-1], count, first=first, width=width)


def test_nonsense_is_refused():
    """Negative sizes, odd widths and rows outside the column are refused."""
    for options in (
        {"count": -1},
        {"count": 1, "first": -1},
        {"count": 1, "width": -1},
        {"count": 1, "offset_bytes": 3},
    ):
        with pytest.raises(ValueError, match="is negative, or the"):
            Column(b"", **options)
    column = Column(b"ab", 2, width=1)
    for options in ({"index_bytes": 3}, {"index_bytes": 4, "first": -1}, {"index_bytes": 4, "count": -1}):
        with pytest.raises(ValueError, match="is negative, or the"):
            column.chosen(b"", **options)
    with pytest.raises(ValueError, match="fewer indices"):
        column.chosen(bytes(7), 4, count=2)
    for row in (-1, 2):
        with pytest.raises(IndexError):
            column.size_of(row)
    with pytest.raises(IndexError):
        fill_columns(RecordBatch(), column, column, -1, 1, 0)


def test_limits_end_it():
    """A key or value over its limit ends the filling, and so does a full batch."""
    keys = Column(bytes(65_536 + 3), 2, offsets=packed([0, 3, 65_539], 4))
    small = Column(b"ab", 2, width=1)
    assert rows(keys, small)[1] == 1
    wide = Column(b"abcd", 2, width=2)
    assert fill_columns(RecordBatch(), small, wide, 0, 1, 0) == 0
    batch = RecordBatch()
    many = Column(bytes(20_000), 20_000, width=1)
    assert fill_columns(batch, many, many, 0, 1, 0) == 16_384
    batch.clear()
    assert fill_columns(batch, many, many, 16_384, 1, 0) == 20_000


def test_the_batch_holds_the_buffers():
    """Records outlive the columns that they came from."""
    batch = RecordBatch()
    data = bytearray(b"abcd")
    fill_columns(
        batch, Column(data, 2, width=2), Column(data, 4, width=1).chosen(packed([3, 0], 1), 1, count=2), 0, 9, 0
    )
    assert list(batch) == [(b"ab", b"d"), (b"cd", b"a")]
    with pytest.raises(BufferError):
        data.clear()
    batch.clear()
    data.clear()
