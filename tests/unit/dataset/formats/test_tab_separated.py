"""Tab-separated text against a five-line oracle, and its limits."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.dataset.formats._formats import TabSeparatedLines
from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, MAX_VALUE_BYTES, FileReading
from gossipkv.dataset.formats.tab_separated import batches
from gossipkv.errors import SourceError
from gossipkv.storage.batch import RecordBatch
from tests.oracle import tab_separated as oracle
from tests.unit.dataset.formats.cut_reader import CutReader, everything

BATCH_RECORDS = 16_384
MAX_LINE_BYTES = MAX_KEY_BYTES + 1 + MAX_VALUE_BYTES


def records(data, sizes=(1 << 18,), name="x", **options):
    """Return all records, and assert their offsets."""
    found, offsets = everything(batches(CutReader(data, sizes, name), FileReading(**options)))
    for (key, value), offset in zip(found, offsets, strict=True):
        assert data[offset : offset + len(key) + 1] == key + b"\t"
        assert offset == 0 or data[offset - 1 : offset] == b"\n"
        assert data[offset + len(key) + 1 :].startswith(value)
    return found


TEXT = st.lists(st.sampled_from([b"\t", b"\n", b"\r", b"a", b"bc", b"\0", b"\xff", b"d\te\n"]), max_size=60).map(
    b"".join
)


@given(TEXT, st.lists(st.integers(1, 9), min_size=1, max_size=4))
@example(b"a\tb", [1])
@example(b"a\tb\n\n\n", [2])
@example(b"\t\n\t\n", [1])
@example(b"a\tb\r\nc\td\te", [3])
def test_it_reads_what_the_oracle_reads(data, sizes):
    """Any bytes and any cuts of chunks give the oracle's records, or the same wrong line."""
    try:
        expected = oracle.records(data)
    except ValueError as error:
        with pytest.raises(SourceError) as caught:
            records(data, sizes)
        assert caught.value.details["line"] == error.args[0]
        lines = data.split(b"\n")[: error.args[0] - 1]
        assert caught.value.details["offset"] == sum(len(line) + 1 for line in lines)
    else:
        assert records(data, sizes) == expected


def test_the_choices_of_the_format():
    """The last LF may be missing, CR is kept, empty lines are skipped, and TABs may be part of values."""
    data = b"a\t1\n\nb\t2\r\n\t3\nc\t\nd\te\tf"
    assert records(data) == [
        (b"a", b"1"), (b"b", b"2\r"), (b"", b"3"), (b"c", b""), (b"d", b"e\tf"),
    ]  # fmt: skip


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (1 << 18,)])
def test_a_byte_order_mark_is_no_part_of_the_first_key(sizes):
    """The mark may be cut by chunks; elsewhere its bytes are data."""
    mark = b"\xef\xbb\xbf"
    data = mark + b"a\t1\n" + mark + b"b\t" + mark + b"\n"
    found, offsets = everything(batches(CutReader(data, sizes, "x"), FileReading()))
    assert found == [(b"a", b"1"), (mark + b"b", mark)]
    assert offsets == [0, 7]
    for alone in (mark, mark + b"\n"):
        assert everything(batches(CutReader(alone, sizes, "x"), FileReading())) == ([], [])


def test_no_chunks_are_no_records():
    assert records(b"") == []


def test_a_line_without_a_tab_is_named():
    """The error has file, line and offset, and shows the line."""
    with pytest.raises(SourceError) as caught:
        records(b"a\t1\nb\t2\nwhat is this\n", [8, 13], "part-3")
    assert str(caught.value) == "part-3: line 3, byte 8: the line 'what is this' contains no TAB"
    assert caught.value.details == {
        "file": "part-3", "line": 3, "offset": 8, "reason": "the line 'what is this' contains no TAB",
    }  # fmt: skip


@pytest.mark.parametrize("size", [1 << 12, 1 << 18, 1 << 26])
@pytest.mark.parametrize("before", [b"", b"a\tb\n", b"\n"])
def test_records_at_the_limits_are_read(size, before):
    """The longest key comes with the longest value, first in a chunk or later."""
    key, value = b"k" * MAX_KEY_BYTES, b"v" * MAX_VALUE_BYTES
    data = before + key + b"\t" + value + b"\nz\tz\n"
    assert records(data, [size])[-2:] == [(key, value), (b"z", b"z")]


@pytest.mark.parametrize("size", [1 << 12, 1 << 18, 1 << 26])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"k" * (MAX_KEY_BYTES + 1) + b"\tv", "the key has at least 65,536 bytes"),
        (b"k" * (MAX_KEY_BYTES + 1), "the line contains no TAB, or its key"),
        (b"k\t" + b"v" * (MAX_VALUE_BYTES + 1), "the value of key 'k' has at least 16,777,217 bytes"),
        (b"k" * (2 * MAX_LINE_BYTES), "the line contains no TAB, or its key"),
        (b"k\t" + b"v" * (2 * MAX_LINE_BYTES), "the value of key 'k' has"),
    ],
)
def test_records_over_the_limits_are_named(size, line, words):
    """The line is refused before its end, so it cannot fill the memory."""
    data = b"a\tb\n" + line + b"\nz\tz\n"
    with pytest.raises(SourceError, match=words) as caught:
        records(data, [size])
    assert (caught.value.details["line"], caught.value.details["offset"]) == (2, 4)


def test_an_endless_line_ends_soon():
    """Little more than the limit is ever taken from the source."""
    reader = CutReader(memoryview(bytes(1 << 28)))
    with pytest.raises(SourceError):
        everything(batches(reader, FileReading()))
    assert reader.taken <= MAX_LINE_BYTES + (2 << 18)


def test_the_limit_of_values_can_be_lowered():
    """The message names the limit that applied."""
    assert records(b"a\t123\n", max_value_bytes=3) == [(b"a", b"123")]
    with pytest.raises(SourceError, match="has at least 4 bytes; the limit is 3"):
        records(b"a\t1234\n", [4, 3], max_value_bytes=3)
    with pytest.raises(SourceError, match="line 2, byte 4: the value of key 'a' has at least 4 bytes"):
        records(b"a\t1\na\t1234\n", max_value_bytes=3)


def test_a_cut_line_waits_for_room():
    """The line that a chunk's end cuts is the first that a full batch has no room for."""
    lines = TabSeparatedLines("x", 100)
    batch = RecordBatch()
    lines.feed(b"a\t\n" * BATCH_RECORDS + b"cut")
    assert lines.fill(batch)
    assert batch.full
    lines.feed(b"\tin two\nb\t\nc\tno LF")
    assert not lines.fill(batch)
    assert not lines.fill(batch)
    batch.clear()
    assert lines.fill(batch)
    assert list(batch) == [(b"cut", b"in two"), (b"b", b"")]
    while not batch.full:
        batch.append(b"", b"")
    assert not lines.finish(batch)
    batch.clear()
    assert lines.finish(batch)
    assert list(batch) == [(b"c", b"no LF")]
    assert batch.offsets() == [3 * BATCH_RECORDS + 3 + 8 + 3]
    assert lines.finish(batch)
    assert len(batch) == 1


def test_a_chunk_is_not_dropped():
    """Feeding before the chunk is used up would lose lines."""
    lines = TabSeparatedLines("x", 100)
    lines.feed(b"a\tb\n")
    with pytest.raises(ValueError, match="not used up"):
        lines.feed(b"c\td\n")
