"""The same table in every format with columns, and files that are damaged."""

import gzip
import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, feather, orc
from pyarrow import parquet as pq

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats._formats import end_of_rows
from gossipkv.dataset.formats.columns import arrow_ipc
from gossipkv.dataset.formats.columns.arrow_ipc import BESIDE_BATCH_BYTES
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from gossipkv.settings.csv_dialect import CsvDialect
from tests.oracle import csv_rows as oracle
from tests.unit.dataset.formats.cut_reader import CutReader, everything

ROWS = 3000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "name": [None if row % 7 == 0 else f"näme {row}" * (row % 5) for row in range(ROWS)],
        "city": pa.array([f"city {row % 9}" for row in range(ROWS)]),
        "tags": [[str(tag) for tag in range(row % 3)] for row in range(ROWS)],
    }
)
FLAT = TABLE.drop_columns(["tags"])
EXPECTED = [
    (str(row["id"]).encode(), {name: value for name, value in row.items() if value is not None})
    for row in TABLE.to_pylist()
]


def arrow_stream(table, **options):
    target = io.BytesIO()
    with pa.ipc.new_stream(target, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=700)
    return target.getvalue()


def feathered(table, **options):
    target = io.BytesIO()
    feather.write_feather(table, target, chunksize=700, **options)
    return target.getvalue()


def orced(table, **options):
    target = io.BytesIO()
    orc.write_table(table, target, **options)
    return target.getvalue()


def parqueted(table, **options):
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return target.getvalue()


def csved(table, **options):
    target = io.BytesIO()
    csv.write_csv(table, target, csv.WriteOptions(**options))
    return target.getvalue()


FILES = {
    "feather": ("arrow", feathered(TABLE)),
    "feather zstd": ("arrow", feathered(TABLE, compression="zstd")),
    "feather plain": ("arrow", feathered(TABLE, compression="uncompressed")),
    "stream": ("arrow", arrow_stream(TABLE)),
    "stream lz4": ("arrow", arrow_stream(TABLE, compression="lz4")),
    "dictionary": ("arrow", feathered(TABLE.set_column(2, "city", TABLE["city"].dictionary_encode()))),
    "dictionary stream": ("arrow", arrow_stream(TABLE.set_column(2, "city", TABLE["city"].dictionary_encode()))),
    "orc": ("orc", orced(TABLE)),
    "orc zstd": ("orc", orced(TABLE, compression="zstd", stripe_size=1000, dictionary_key_size_threshold=0.9)),
    "parquet": ("parquet", parqueted(TABLE, row_group_size=700)),
}


def read(form, data, name="part-0", **options):
    return everything(detect.batches(form, CutReader(data, (1 << 16,), name), FileReading(**options)))[0]


@pytest.mark.parametrize("name", FILES)
def test_rows_are_the_same_in_every_format(name):
    form, data = FILES[name]
    assert detect.detect_file(CutReader(data, name="part-0"), FileReading()) == form
    assert [(key, json.loads(value)) for key, value in read(form, data, key="id", value="*")] == EXPECTED
    assert read(form, data, key="id", value="city")[:2] == [(b"0", b"city 0"), (b"1", b"city 1")]
    none = {"feather": feathered, "stream": arrow_stream, "orc": orced, "parquet": parqueted}.get(name)
    if none is not None:
        assert read(form, none(TABLE.slice(0, 0)), key="id", value="*") == []


@pytest.mark.parametrize("form", ["arrow", "orc", "csv", "avro"])
@pytest.mark.parametrize("data", [b"", b"nonsense of any length" * 9, b"ARROW1\0\0" + bytes(90), b"ORC" + bytes(9)])
def test_what_is_no_such_file_is_one_error(form, data):
    if form == "csv" and not data:
        assert read(form, data) == []
    elif form != "avro":
        with pytest.raises(SourceError, match=r"^part-0: "):
            read(form, data)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_cut_file_is_refused(name, share):
    form, data = FILES[name]
    with pytest.raises(SourceError, match=r"^part-0: "):
        read(form, data[: int(len(data) * share)], key="id", value="*")


def test_large_record_batches_are_refused_before_they_are_read():
    """The bytes that a compressed batch becomes count; the error says how much would do."""
    table = pa.table({"key": ["a", "b"], "value": ["x" * 2_000_000, "y"]})
    for data in (feathered(table), arrow_stream(table, compression="zstd"), arrow_stream(table)):
        limit = BESIDE_BATCH_BYTES + 2_000_000
        with pytest.raises(SourceError, match=r"the record batch needs .* build_memory = \d+MiB is enough") as caught:
            read("arrow", data, max_columns_bytes=limit)
        assert len(read("arrow", data, max_columns_bytes=caught.value.details["columns_bytes"])) == 2


def test_flat_buffers_beyond_their_data_are_an_error():
    data = bytearray(feathered(FLAT, compression="uncompressed"))
    data[20:40] = b"\xff" * 20
    with pytest.raises(SourceError, match="the Arrow messages cannot be read"):
        list(arrow_ipc.batches(CutReader(data), FileReading()))


# -- CSV ---------------------------------------------------------------------------------------------------------------


CSV_ROWS = [(key, {name: str(value) for name, value in row.items() if name != "tags"}) for key, row in EXPECTED]


@pytest.mark.parametrize(
    ("name", "data", "dialect"),
    [
        ("part.csv", csved(FLAT), {}),
        ("part.csv.gz", gzip.compress(b"\xef\xbb\xbf" + csved(FLAT), mtime=0), {}),
        ("part.tsv", csved(FLAT, delimiter="\t"), {}),
        ("part.tsv", csved(FLAT, delimiter="|", include_header=False), {"delimiter": "|", "header": False}),
    ],
    ids=str,
)
def test_csv_is_read_as_strings(name, data, dialect):
    """Names come from the header or the dialect; a file called .tsv has TABs."""
    columns = tuple(FLAT.column_names) if dialect else ()
    options = FileReading("id", "*", csv=CsvDialect(columns=columns, **dialect))
    found = everything(detect.batches("csv", CutReader(data, (5000,), name), options))[0]
    assert [(key, json.loads(value)) for key, value in found] == CSV_ROWS


def test_dialects_of_csv():
    """Nulls, types, quotes within quotes, lines within quotes, escapes, and no quotes at all."""
    text = b'key,value,n\r\n007,"a ""b""\n,c",1\r\n008,,2\r\n009,"",NA\r\n'
    options = {"value": "*", "csv": CsvDialect(null=("", "NA"), types=(("n", "int64"),))}
    assert [json.loads(value) for _, value in read("csv", text, **options)] == [
        {"key": "007", "value": 'a "b"\n,c', "n": 1}, {"key": "008", "n": 2}, {"key": "009", "value": ""},
    ]  # fmt: skip
    escaped = CsvDialect(escape="\\")
    assert read("csv", b'key,value\n"a\\",\\\n",b\\,\n', csv=escaped) == [(b'a",\n', b"b,")]
    assert read("csv", b'key,value\n"a,b"\n', csv=CsvDialect(quote="")) == [(b'"a', b'b"')]
    assert read("csv", b"key,value\nk,\xff\n") == [(b"k", b"\xff")]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp037"])
def test_encodings_of_csv(encoding):
    """Text becomes UTF-8 whatever pieces it comes in, header included."""
    text = "ключ,value\ncafé,fünf\n€,x\n" if encoding.startswith("utf") else "clé,value\ncafé,fünf\n"
    key = text.partition(",")[0]
    expected = [tuple(cell.encode() for cell in line.split(",")) for line in text.split("\n")[1:-1]]
    warnings = []
    for step in (1, 3, 5000):
        options = FileReading(key, csv=CsvDialect(encoding=encoding), warn=warnings.append)
        reader = CutReader(text.encode(encoding), (step,), "part.csv")
        assert everything(detect.batches("csv", reader, options))[0] == expected
    assert not warnings


@pytest.mark.parametrize("end", [b"\n", b""])
def test_bytes_that_are_not_utf_8_are_told_by_their_line(end):
    """They are served as they are, and told once; with an encoding they are refused."""
    text = "key,value\né,1\n".encode() + b"caf\xe9,2\nx,\xfc" + end
    for step in (1, 5000):
        warnings = []
        reader = CutReader(text, (step,), "part.csv")
        rows = everything(detect.batches("csv", reader, FileReading(warn=warnings.append)))[0]
        assert rows == [("é".encode(), b"1"), (b"caf\xe9", b"2"), (b"x", b"\xfc")]
        (warning,) = warnings
        assert warning.startswith("line 3 is not UTF-8, so its fields are served as other bytes; set csv = { encoding")
        with pytest.raises(SourceError, match="line 3 is not text in utf-8"):
            everything(detect.batches("csv", reader, FileReading(csv=CsvDialect(encoding="utf-8"))))
    with pytest.raises(SourceError, match="line 2 is not text in utf-16: truncated data"):
        read("csv", "key,value\n".encode("utf-16") + b"a", csv=CsvDialect(encoding="utf-16"))


@pytest.mark.parametrize("value", ["", "no", "rot13", "base64", "undefined", "a\0b", "ü", 7, None])
def test_an_encoding_is_one_that_python_knows(value):
    with pytest.raises(ValueError, match="encoding: expected a text encoding that Python knows, such as cp1252 or"):
        CsvDialect.read({"encoding": value})


@pytest.mark.parametrize(
    ("text", "rows"),
    [(b"key,value\n", 0), (b"key,value", 0), (b"\n \n", 0), (b"key,value\r\n\r\na,b", 1), (b"key,value\ra,b\r", 1)],
)
def test_few_lines_of_csv(text, rows):
    """A header alone, empty lines, and every end of a line."""
    assert read("csv", text) == [(b"a", b"b")] * rows


def test_wrong_csv_is_refused():
    with pytest.raises(SourceError, match=r"row 2, in the piece at byte 0: the column 'value' is null"):
        read("csv", b"key,value\na,b\nc,\n")
    with pytest.raises(SourceError, match="the header names a column twice: key, key"):
        read("csv", b"key,key\na,b\n")
    with pytest.raises(SourceError, match=r"the rows from 1 on cannot be read: .*Expected 2 columns, got 3"):
        read("csv", b"key,value\na,b,c\n")
    with pytest.raises(SourceError, match=r"a row has more than 100,000 bytes, or a quote is not closed; on a node"):
        read("csv", b'key,value\na,"' + b"x" * 3_000_000, max_columns_bytes=800_000)


@given(st.text('a,"\n\r\\', max_size=30), st.booleans())
def test_rows_end_where_the_oracle_ends_them(text, first):
    """Any text is cut behind whole rows."""
    data = text.encode()
    assert end_of_rows(data, ord(","), ord('"'), -1, first) == oracle.end_of_rows(data, ",", '"', first=first)
    without = data.replace(b'"', b"x")
    assert end_of_rows(without, ord(","), -1, -1) == oracle.end_of_rows(without, ",", '"')
