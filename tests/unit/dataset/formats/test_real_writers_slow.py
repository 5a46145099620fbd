"""Files as pandas, polars, DuckDB and fastavro write them by default: counts and values."""

import contextlib
import datetime as dt
import io
import json
import uuid
from decimal import Decimal

import duckdb
import fastavro
import pandas as pd
import polars as pl
import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from gossipkv.settings.csv_dialect import CsvDialect
from tests.unit.dataset.formats.cut_reader import CutReader, everything

ROWS = 20_000
TABLE = {"user_id": list(range(ROWS)), "name": [f"user {row} " * (row % 4 + 1) for row in range(ROWS)]}
EXPECTED = [(str(row).encode(), {"user_id": row, "name": TABLE["name"][row]}) for row in range(ROWS)]
TEXTS = [(key, {"user_id": str(row["user_id"]), "name": row["name"]}) for key, row in EXPECTED]


def read(path, form=None, **options):
    reader = CutReader(path.read_bytes(), name=path.name)
    options = FileReading(**{"key": "user_id", "value": "*", **options})
    form = form or detect.detect_file(reader, options)
    return [(key, json.loads(value)) for key, value in everything(detect.batches(form, reader, options))[0]]


def duck(path, options):
    frame = pl.DataFrame(TABLE)  # noqa: F841  # DuckDB finds it by its name.
    duckdb.sql(f"COPY (SELECT * FROM frame) TO '{path}' {options}")


WRITERS = {
    "pandas.parquet": lambda path: pd.DataFrame(TABLE).to_parquet(path),
    "pandas.feather": lambda path: pd.DataFrame(TABLE).to_feather(path),
    "pandas.orc": lambda path: pd.DataFrame(TABLE).to_orc(path),
    "pandas.csv": lambda path: pd.DataFrame(TABLE).to_csv(path),
    "pandas.csv.gz": lambda path: pd.DataFrame(TABLE).to_csv(path, index=False),
    "pandas.tsv": lambda path: pd.DataFrame(TABLE).to_csv(path, sep="\t"),
    "polars.parquet": lambda path: pl.DataFrame(TABLE).write_parquet(path),
    "polars.arrow": lambda path: pl.DataFrame(TABLE).write_ipc(path),
    "polars.arrows": lambda path: pl.DataFrame(TABLE).write_ipc_stream(path),
    "polars.avro": lambda path: pl.DataFrame(TABLE).write_avro(path),
    "polars.csv": lambda path: pl.DataFrame(TABLE).write_csv(path),
    "duckdb.parquet": lambda path: duck(path, ""),
    "duckdb.csv": lambda path: duck(path, ""),
    "duckdb.tsv": lambda path: duck(path, "(DELIMITER '\t')"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_defaults_are_read(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    is_text = ".csv" in name or ".tsv" in name
    found = read(path, "csv" if is_text else None, value=("user_id", "name"))
    assert found == (TEXTS if is_text else EXPECTED)


def test_types_of_duckdb(tmp_path):
    """JSON is JSON within a row, UUIDs are text, and so on; a JSON column alone is served as it is."""
    path = tmp_path / "types.parquet"
    duckdb.sql(
        "COPY (SELECT 'k' || i AS key, json_object('a', i) AS j, uuid() AS u, 1.5::DECIMAL(9, 2) AS d, "
        "DATE '2024-01-31' AS day, {'x': i, 'y': [i]} AS s, MAP {'m': i} AS m, 'b'::ENUM ('a', 'b') AS e, "
        f"TIMESTAMP '2024-01-31 01:02:03' AS t, true AS yes FROM range(1000) t(i)) TO '{path}'"
    )
    rows = read(path, key="key")
    assert len(rows) == 1000
    key, row = rows[7]
    assert key == b"k7"
    assert row == {
        "u": str(uuid.UUID(row["u"])), "key": "k7", "j": {"a": 7}, "d": 1.5, "day": "2024-01-31",
        "s": {"x": 7, "y": [7]}, "m": {"m": 7}, "e": "b",
        "t": "2024-01-31T01:02:03.000000", "yes": True,
    }  # fmt: skip
    assert read(path, key="key", value="j")[7] == (b"k7", {"a": 7})
    reader = CutReader(path.read_bytes())
    (first, *_) = everything(detect.batches("parquet", reader, FileReading("u", "key")))[0]
    assert str(uuid.UUID(first[0].decode())).encode() == first[0]


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
    ],
}  # fmt: skip
UUID = "123e4567-e89b-12d3-a456-426614174000"


def avro_rows():
    for row in range(10_000):
        yield {
            "key": f"k{row}", "n": row if row % 2 else None, "b": b"\xff", "e": "Y", "f": b"ab", "again": "X",
            "l": [row], "m": {"a": 0.5}, "r": {"x": True}, "u": UUID, "d": dt.date(2024, 1, 31),
            "t": dt.datetime(2024, 1, 31, tzinfo=dt.UTC), "p": Decimal("12.30"),
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
    }  # fmt: skip
    assert "n" not in rows[8][1]
    data = path.read_bytes()
    for end in range(1, len(data), len(data) // 20):
        with contextlib.suppress(SourceError):  # A cut between two blocks cannot be seen.
            assert len(everything(detect.batches("avro", CutReader(data[:end]), FileReading("key", "*")))[0]) < 10_000
    with pytest.raises(SourceError, match="build_memory allows larger ones"):
        everything(detect.batches("avro", CutReader(data), FileReading("key", "*", max_block_bytes=1000)))


def test_other_avro_is_refused():
    for kind, words in (
        (["int", "string"], "a union of 2 types besides null"),
        ({"type": "record", "name": "Row", "fields": [{"name": "x", "type": ["null", "Row"]}]}, "within itself"),
        ("int", "its records have no fields"),
    ):
        schema = kind if kind == "int" or "fields" in kind else {
            "type": "record", "name": "Row", "fields": [{"name": "key", "type": kind}],
        }  # fmt: skip
        target = io.BytesIO()
        fastavro.writer(target, fastavro.parse_schema(schema), [])
        with pytest.raises(SourceError, match=words):
            everything(detect.batches("avro", CutReader(target.getvalue()), FileReading()))


def test_the_dialect_reads_what_pandas_writes(tmp_path):
    path = tmp_path / "part.tsv"
    pd.DataFrame({"id": ["a", "b"], "text": ["x", 'say "y"']}).to_csv(path, sep="\t")
    dialect = CsvDialect(delimiter="\t")
    assert read(path, "csv", key="id", value=("text",), csv=dialect) == [
        (b"a", {"text": "x"}),
        (b"b", {"text": 'say "y"'}),
    ]
