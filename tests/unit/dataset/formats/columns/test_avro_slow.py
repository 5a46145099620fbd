"""Avro files of fastavro and polars, their types, codecs and damage."""

import contextlib
import datetime as dt
import io
import json
import uuid
from decimal import Decimal

import fastavro
import polars as pl
import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from tests.unit.dataset.formats.cut_reader import CutReader, everything


def read(path, **options):
    reader = CutReader(path.read_bytes(), name=path.name)
    options = FileReading(value="*", **options)
    assert detect.detect_file(reader, options) == "avro"
    return [(key, json.loads(value)) for key, value in everything(detect.batches("avro", reader, options))[0]]


def test_avro_of_polars(tmp_path):
    path = tmp_path / "part"
    pl.DataFrame({"id": range(5000), "name": [f"user {row}" for row in range(5000)]}).write_avro(path)
    assert read(path, key="id") == [(b"%d" % row, {"id": row, "name": f"user {row}"}) for row in range(5000)]


SCHEMA = {
    "type": "record", "name": "Row", "namespace": "a.b",
    "fields": [
        {"name": "key", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "b", "type": "bytes"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "again", "type": "E"},
        {"name": "l", "type": {"type": "array", "items": "int"}},
        {"name": "m", "type": {"type": "map", "values": "double"}},
        {"name": "r", "type": {"type": "record", "name": "R", "fields": [{"name": "x", "type": "boolean"}]}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "w", "type": {"type": "fixed", "name": "W", "size": 16, "logicalType": "uuid"}},
        {"name": "ns", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
    ],
}  # fmt: skip
UUID = "123e4567-e89b-12d3-a456-426614174000"


def avro_rows():
    for row in range(10_000):
        yield {
            "key": f"k{row}", "n": row if row % 2 else None, "b": b"\xff", "e": "Y", "f": b"ab", "again": "X",
            "l": [row], "m": {"a": 0.5}, "r": {"x": True}, "u": UUID, "d": dt.date(2024, 1, 31),
            "t": dt.datetime(2024, 1, 31, tzinfo=dt.UTC), "p": Decimal("12.30"),
            "w": uuid.UUID(UUID).bytes, "ns": 1_700_000_000_123_456_789,
        }  # fmt: skip


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_avro(tmp_path, codec):
    path = tmp_path / "part"
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(SCHEMA), avro_rows(), codec=codec)
    rows = read(path, key="key")
    assert len(rows) == 10_000
    assert rows[7][1] == {
        "key": "k7", "n": 7, "b": {"base64": "/w=="}, "e": "Y", "f": "ab", "again": "X", "l": [7], "m": {"a": 0.5},
        "r": {"x": True}, "u": UUID, "d": "2024-01-31", "t": "2024-01-31T00:00:00.000000Z", "p": 12.3,
        "w": UUID, "ns": "2023-11-14T22:13:20.123456789Z",
    }  # fmt: skip
    assert "n" not in rows[8][1]
    data = path.read_bytes()
    for end in range(1, len(data), len(data) // 6):
        with contextlib.suppress(SourceError):  # A cut between two blocks cannot be seen.
            assert len(everything(detect.batches("avro", CutReader(data[:end]), FileReading("key", "*")))[0]) < 10_000
    with pytest.raises(SourceError, match="a larger build_memory raises the limit"):
        everything(detect.batches("avro", CutReader(data), FileReading("key", "*", max_block_bytes=1000)))


def test_metadata_may_be_bytes():
    """The schema and the codec alone are text; what is cut is refused."""
    target = io.BytesIO()
    schema = {"type": "record", "name": "Row", "fields": [{"name": "key", "type": "string"}]}
    fastavro.writer(target, fastavro.parse_schema(schema), [{"key": "a"}], metadata={"mark": "@@"}, codec="deflate")
    data = target.getvalue().replace(b"@@", b"\xff\xd7")
    options = FileReading("key", "key")
    assert everything(detect.batches("avro", CutReader(data), options))[0] == [(b"a", b"a")]
    for end in (2, 10, data.index(b"\xff\xd7")):
        with pytest.raises(SourceError, match="the file cannot be read as Avro"):
            everything(detect.batches("avro", CutReader(data[:end]), options))


def test_other_avro_is_refused():
    for kind, words in (
        (["int", "string"], "a union has 2 types besides null"),
        ({"type": "record", "name": "Row", "fields": [{"name": "x", "type": ["null", "Row"]}]}, "contains itself"),
        ("int", "its records have no fields"),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "interval"),
    ):
        schema = kind if kind == "int" or "fields" in kind else {
            "type": "record", "name": "Row", "fields": [{"name": "key", "type": kind}],
        }  # fmt: skip
        target = io.BytesIO()
        fastavro.writer(target, fastavro.parse_schema(schema), [])
        with pytest.raises(SourceError, match=words):
            everything(detect.batches("avro", CutReader(target.getvalue()), FileReading("key", "key")))
