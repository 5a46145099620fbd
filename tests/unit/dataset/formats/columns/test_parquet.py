"""Parquet: columns of byte strings of all types, refusals, and the memory of a file."""

import io
import random
from datetime import datetime
from itertools import islice

import msgpack
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from gossipkv.dataset.formats.columns import parquet_pages
from gossipkv.dataset.formats.columns.arrow_file import WINDOW_BYTES
from gossipkv.dataset.formats.columns.parquet import BESIDE_PAGES_BYTES, batches
from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, FileReading
from gossipkv.errors import SourceChanged, SourceError
from tests.unit.dataset.formats.cut_reader import CutReader, everything

ROWS = 3000
KEYS = [b"key %d" % number for number in range(ROWS)]
VALUES = [b"\xff\0%d" % (number % 7) * (number % 50) for number in range(ROWS)]
ASCII = [value.hex() for value in VALUES]
FIXED = [b"%06d" % number for number in range(ROWS)]


def written(table, **options):
    target = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), target, **options)
    return target.getvalue()


def read(data, **options):
    return everything(batches(CutReader(data), FileReading(**options)))[0]


def refused(data, **options):
    with pytest.raises(SourceError) as caught:
        read(data, **options)
    details = caught.value.details
    assert details["file"] == "file"
    assert 0 <= details["offset"] <= len(data)
    assert str(caught.value).startswith("file: ")
    assert str(caught.value).endswith(f": {details['reason']}")
    return details["reason"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(VALUES, pa.binary()), pa.array(VALUES, pa.large_binary()), pa.array(VALUES, pa.binary_view()),
        pa.array(ASCII, pa.string()), pa.array(ASCII, pa.large_string()), pa.array(ASCII, pa.string_view()),
        pa.array(FIXED, pa.binary(6)), pa.array(VALUES, pa.binary()).dictionary_encode(),
        pa.array(ASCII, pa.string()).dictionary_encode(), pa.array(FIXED, pa.binary(6)).dictionary_encode(),
        pa.array([b"%016d" % number for number in range(ROWS)], pa.uuid()),
    ],
    ids=lambda array: str(array.type).replace(" ", ""),
)  # fmt: skip
@pytest.mark.parametrize(
    "options",
    [
        {}, {"use_dictionary": False, "compression": "none"}, {"data_page_version": "2.0", "compression": "zstd"},
        {"row_group_size": 700, "compression": "gzip", "write_page_index": True, "write_page_checksum": True},
        {"data_page_size": 1000, "dictionary_pagesize_limit": 2000}, {"store_schema": False, "compression": "lz4"},
        {"write_statistics": False, "compression": "brotli", "row_group_size": 1},
    ],
    ids=str,
)  # fmt: skip
def test_every_type_is_read(values, options):
    """Values are read as bytes, in row order, from pages of any kind."""
    if options.get("row_group_size") == 1:
        values = values[:40]
    table = {"key": pa.array(KEYS[: len(values)]), "value": values, "other": list(range(len(values)))}
    expected = [value if isinstance(value, bytes) else str(value).encode() for value in values.to_pylist()]
    assert read(written(table, **options)) == list(zip(KEYS, expected, strict=False))


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_every_encoding_is_read(encoding):
    """Delta encodings are read in smaller batches."""
    data = written(
        {"key": KEYS, "value": VALUES}, use_dictionary=False, column_encoding={"key": encoding, "value": encoding}
    )
    assert read(data) == list(zip(KEYS, VALUES, strict=True))


@pytest.mark.parametrize(
    ("writer", "is_read"),
    [("parquet-mr", True), ("parquet-mr version 1.2.8 (build 1)", True), ("parquet-mr version 1.2.9 (build 1)", False)],
)
def test_parquet_mr_did_not_count_the_header_of_a_dictionary(writer, is_read):
    """The sizes of column chunks lack it before 1.2.9; the first versions do not give theirs."""
    data = written({"key": KEYS, "value": VALUES}, compression="none", write_statistics=False)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    metadata = pq.read_metadata(io.BytesIO(data))
    for chunk in map(metadata.row_group(0).column, range(2)):
        at, size_bytes = chunk.dictionary_page_offset, chunk.total_compressed_size
        dictionary, page = islice(parquet_pages.pages(CutReader(data), at, start, ROWS), 2)
        lacking = size_bytes - (page.offset - dictionary.offset - dictionary.raw_bytes)
        # Both sizes of a chunk are the same; each follows the header of a field.
        footer = footer.replace(b"\x16" + varint(2 * size_bytes), b"\x16" + varint(2 * lacking))
    given = metadata.created_by.encode()
    footer = footer.replace(varint(len(given)) + given, varint(len(writer)) + writer.encode())
    data = data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    if is_read:
        assert read(data) == list(zip(KEYS, VALUES, strict=True))
    else:
        assert "bytes after its column chunk" in refused(data)


def test_old_timestamps_are_read_in_microseconds():
    """INT96 holds years that do not fit into nanoseconds; what Arrow cannot write as text is refused."""
    days = [datetime.fromisoformat(day) for day in ("9999-12-31", "1600-01-01")]
    data = written({"key": KEYS[:2], "value": days}, use_deprecated_int96_timestamps=True)
    assert [value for _, value in read(data)] == [b"9999-12-31T00:00:00.000000", b"1600-01-01T00:00:00.000000"]
    for beyond in (pa.array([2**62], pa.timestamp("us")), pa.array([2**31 - 1], pa.date32())):
        for column in (beyond, pa.ListArray.from_arrays([0, 1], beyond)):
            assert "is after the year 32767" in refused(written({"key": KEYS[:1], "value": column}))


def test_columns_can_be_named():
    """Any top-level column can be named, with dots too; one column may be key and value."""
    data = written({"a.b": ["1"], "id": ["2"], "s": [{"id": "3"}]})
    assert read(data, key="id", value="a.b") == [(b"2", b"1")]
    assert read(data, key="id", value="id") == [(b"2", b"2")]


def test_no_rows_are_no_records():
    """Files without rows may have a row group or none; offsets are those of row groups."""
    assert read(written({"key": pa.array([], pa.binary()), "value": pa.array([], pa.string())})) == []
    data = written({"key": KEYS[:4], "value": VALUES[:4]}, row_group_size=2)
    offsets = everything(batches(CutReader(data), FileReading()))[1]
    assert offsets[0] == offsets[1] == 4 < offsets[2] == offsets[3]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.5, 2]), "the column 'id' has the type double and cannot be a key"),
        (pa.array([[b"a"], [b"b"]]), "the column 'id' has the type list"),
        (pa.array([None, None]), "the column 'id' has the type null and cannot be a key"),
        (pa.array([b"a", None]), "the column 'id' is null; every record needs a key and a value"),
    ],
    ids=lambda item: str(item.type) if isinstance(item, pa.Array) else "",
)
def test_other_columns_are_refused(column, words):
    """The error names the type and the remedy."""
    assert refused(written({"id": column, "value": ["a", "b"]}), key="id").startswith(words)


# Kinds of the format, by their numbers as converted and logical types.
LABELS = {"ENUM": (4, 4), "JSON": (19, 12), "BSON": (20, 13), "GEOMETRY": (None, 17), "GEOGRAPHY": (None, 18),
          "INTERVAL": (21, None), "newer than pyarrow": (None, 30)}  # fmt: skip


def labelled(kind):
    """Return a file whose column has a label that pyarrow does not write, in place of its own."""
    number, logical = LABELS[kind]
    column = pa.array([bytes(12)], pa.binary(12)) if kind == "INTERVAL" else pa.array(['{"a": 1}'])
    data = written({"value": column, "key": ["a"]}, store_schema=False, write_statistics=False)
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    name = b"\x18\x05value"
    old, new = name + (b"" if kind == "INTERVAL" else b"\x25\0\x4c\x1c\0\0"), name
    if number is not None:
        new += bytes([0x25, 2 * number])
    if logical is not None:
        field = bytes([logical << 4 | 12]) if logical < 16 else bytes([12, 2 * logical])
        new += (b"\x6c" if number is None else b"\x4c") + field + b"\0\0"
    footer = data[end:-8].replace(old, new, 1)
    return data[:end] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_labels_of_types_that_arrow_lacks():
    """A name of an enumeration is text, documents and shapes are bytes; JSON is an object within a row."""
    for kind in ("ENUM", "JSON", "BSON", "GEOMETRY", "GEOGRAPHY"):
        data, text = labelled(kind), b'{"a": 1}'
        assert read(data) == [(b"a", text)], kind
        row = msgpack.unpackb(read(data, value=("value",), encoding="msgpack")[0][1])
        assert row == {"value": text.decode() if kind in {"ENUM", "JSON"} else text}, kind


@pytest.mark.parametrize("kind", ["INTERVAL", "newer than pyarrow"])
def test_labels_that_arrow_loses_are_refused_where_they_are_read(kind):
    data = labelled(kind)
    name = "UNDEFINED" if kind != "INTERVAL" else kind
    assert refused(data) == f"the column 'value' has the type {name}, which cannot be read; write a string"
    assert f"has the type {name}" in refused(data, key="value", value="key")
    assert "has the type" in refused(data, value="*")
    assert read(data, value="key") == [(b"a", b"a")]


def test_variants_are_refused_by_their_form():
    """Some writers give the group no label; a struct that only resembles one is read."""
    binary = pa.binary()
    parts = [("metadata", binary), ("value", binary)]
    for kind in (pa.struct(parts), pa.list_(pa.struct([*parts, ("typed_value", pa.int32())]))):
        data = written({"key": ["a"], "value": pa.nulls(1, kind)})
        assert refused(data).startswith("the column 'value' has the type VARIANT, which cannot be read")
    alike = pa.struct([("metadata", pa.string()), ("value", binary)])
    rows = pa.array([{"metadata": "m", "value": b"v"}], alike)
    assert read(written({"key": ["a"], "value": rows})) == [(b"a", b'{"metadata":"m","value":"v"}')]


def test_missing_and_nested_columns_are_refused():
    """The error lists the existing columns."""
    table = pa.table({"id": ["a"], "n": [{"value": "b"}], "value": ["c"]})
    assert refused(written(table)) == (
        "the column 'key' does not exist; the columns are id, n, value; set `key` and `value` to the columns to serve"
    )
    assert refused(written(table), key="n.value").startswith(
        "the column 'n.value' does not exist; the columns are id, n, value; set"
    )
    many = pa.table({f"c{number:02}": ["a"] for number in range(20)})
    assert "c10, c11, …; set" in refused(written(many))
    twice = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["key", "key", "value"])
    assert "2 columns have the name 'key'" in refused(written(twice))


def test_a_null_is_named_by_its_row():
    """Rows are counted across row groups and batches."""
    values = [*VALUES[:2345], None, *VALUES[2346:]]
    data = written({"key": KEYS, "value": values}, row_group_size=1000)
    with pytest.raises(
        SourceError, match=r"^file: row 2,346, in the row group at byte [\d,]+: the column 'value'"
    ) as at:
        read(data)
    assert at.value.details["row"] == 2346


def test_limits_name_the_row():
    longest = {"key": [b"a", b"k" * MAX_KEY_BYTES], "value": [b"", b"12345"]}
    assert read(written(longest), max_value_bytes=5)[1][1] == b"12345"
    assert refused(written(longest), max_value_bytes=4) == "the value has 5 bytes; the limit is 4 bytes"
    assert (
        refused(written({"key": [b"k" * 65_536], "value": [b""]}))
        == "the key has 65,536 bytes; the limit is 65,535 bytes"
    )


def signed():
    """Return a file whose footer is signed, as where only columns are encrypted."""
    data = written({"key": KEYS, "value": VALUES})
    size = int.from_bytes(data[-8:-4], "little") + 28
    return data[:-8] + bytes(28) + size.to_bytes(4, "little") + b"PAR1"


SIGNED = signed()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file has 0 bytes, which is too short"),
        (b"PAR1", "the file has 4 bytes, which is too short"),
        (b"key\tvalue\n" * 9, "the file begins with b'key\\t'"),
        (b"PAR1" + bytes(90), "the file ends with b'\\x00\\x00\\x00\\x00', not with b'PAR1'; it may be truncated"),
        (b"PARE" + bytes(90) + b"PARE", "the Parquet file is encrypted"),
        (SIGNED, "the Parquet file is encrypted"),
        (b"PAR1" + bytes(90) + b"\xff\xff\xff\xffPAR1", "the footer claims 4,294,967,295 bytes in a file of 102 bytes"),
        (b"PAR1" + b"\xff" * 90 + b"\x10\0\0\0PAR1", "the footer cannot be read"),
    ],
)
def test_what_is_no_parquet_is_refused(data, words):
    """The first and the last bytes decide."""
    assert refused(data).startswith(words)


def test_a_cut_file_is_refused():
    data = written({"key": KEYS[:5], "value": VALUES[:5]})
    for end in range(len(data)):
        refused(data[:end])


def test_what_the_reader_raises_passes_through():
    """A changed file is not reported as damaged."""

    class Changing(CutReader):
        def read_at(self, offset, size_bytes):
            if offset + size_bytes < 3000:
                raise SourceChanged("changed")
            return super().read_at(offset, size_bytes)

    data = written({"key": KEYS, "value": VALUES}, compression="none")
    with pytest.raises(SourceChanged, match=r"^changed$"):
        everything(batches(Changing(b"PAR1" + data[4:]), FileReading()))


def test_pages_over_the_limit_are_refused():
    """Large pages are refused before they are read; smaller pages of the same column are read."""
    data = written({"key": KEYS, "value": VALUES}, use_dictionary=False, data_page_size=1 << 30)
    reader = CutReader(data)
    limit = BESIDE_PAGES_BYTES + 150_000
    words = (
        rf"the largest pages .* have [\d,]+ bytes .* the limit is {limit:,} bytes; .* build_memory = \d+MiB is enough"
    )
    with pytest.raises(SourceError, match=words) as caught:
        everything(batches(reader, FileReading(max_columns_bytes=limit)))
    assert len(read(data, max_columns_bytes=caught.value.details["columns_bytes"])) == ROWS
    small = written({"key": KEYS, "value": VALUES}, use_dictionary=False, data_page_size=4096, write_batch_size=64)
    assert len(read(small, max_columns_bytes=limit)) == ROWS


def test_a_file_is_read_in_large_pieces():
    """Alternating columns must not fetch the same bytes again, since each request to a remote source costs time."""

    class Counting(CutReader):
        sizes = ()

        def read_at(self, offset, size_bytes):
            self.sizes += (size_bytes,)
            return super().read_at(offset, size_bytes)

    column = [random.randbytes(500) for _ in range(30_000)]
    options = {"use_dictionary": False, "compression": "none"}
    reader = Counting(written({"key": column, "value": column[::-1]}, **options))
    assert everything(batches(reader, FileReading()))[0] == list(zip(column, column[::-1], strict=True))
    assert sum(reader.sizes) < 1.6 * reader.size_bytes
    # The rest are page headers.
    assert len([size for size in reader.sizes if size > 1 << 16]) < 2 * reader.size_bytes / WINDOW_BYTES


# -- page headers ------------------------------------------------------------------------------------------------------


def header(*fields):
    """Return a page header of (id, size) and (id, fields)."""
    data = b""
    for number, value in fields:
        data += bytes([0x0C if isinstance(value, tuple) else 0x05]) + varint(2 * number)
        data += header(*value) if isinstance(value, tuple) else varint(2 * value if value >= 0 else -2 * value - 1)
    return data + b"\0"


def varint(value):
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def found(data, values, end=None):
    return list(parquet_pages.pages(CutReader(data), 0, len(data) if end is None else end, values))


def test_page_headers_are_read():
    """A dictionary page and data pages of both versions are found, with any other fields in their headers."""
    data = header((1, 2), (2, 70), (3, 5), (7, ((1, 3), (2, 0)))) + bytes(5)
    second = len(data)
    plain = header((1, 0), (2, 60), (3, 6))[:-1] + b"\x2c" + header((1, 4), (2, 8))[:-1]
    # Statistics with a long value; then a boolean, a byte, a double, a list of booleans, a set of i32.
    plain += b"\x3c\x18" + varint(400) + bytes(400) + b"\0\x11\x13\x07\x17" + bytes(8)
    data += plain + b"\x19\x21\x01\x02\x1a\x15\x02\0" + b"\0" + bytes(6)
    third = len(data)
    data += header((1, 3), (2, 9), (3, 90), (8, ((1, 6), (2, 0), (3, 6), (4, 7)))) + bytes(90)
    pages = found(data, 10)
    assert [(page.offset, page.kind, page.raw_bytes, page.values, page.encoding) for page in pages[::2]] == [
        (0, 2, 70, 3, 0), (third, 3, 90, 6, 7),
    ]  # fmt: skip
    assert pages[1].offset == second


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the column chunk ends 1 values early"),
        (b"\x15", "the page header has no end"),
        (b"\x18\xff\xff\xff\xff\x0f", "the page header has no end"),
        (b"\x15" + b"\xff" * 11, "the page header cannot be read: a varint has more than 10 bytes"),
        (b"\x1f", "the page header cannot be read: a field has the unknown type 15"),
        (b"\x1c" * 20, "the page header cannot be read: it is nested deeper than 8 levels"),
        (b"\x19" * 20, "the page header cannot be read: it is nested deeper than 8 levels"),
        (b"\x19\xf1\xff\xff\xff\xff\x0f" + bytes(9), "the page header has no end"),
        (header((1, 0), (2, 5)), "the page header has no size"),
        (
            header((1, 0), (2, -5), (3, 5)),
            "the page header has impossible sizes: -5 bytes, 5 compressed bytes and 0 values",
        ),
        (
            header((1, 0), (2, 5), (3, 5), (5, ((1, -1),))),
            "the page header has impossible sizes: 5 bytes, 5 compressed bytes and -1 values",
        ),
        (header((1, 0), (2, 5), (3, 5), (5, ((1, 1),))), "the page ends 5 bytes after its column chunk"),
        (header((1, 0), (2, 0), (3, 0), (5, ((1, 0),))), "the column chunk ends 1 values early"),
    ],
)
def test_damaged_page_headers_are_refused(data, words):
    """The error has the offset of the header."""
    with pytest.raises(SourceError) as caught:
        found(data, 1)
    assert caught.value.details["reason"] == words


# -- memory ------------------------------------------------------------------------------------------------------------
