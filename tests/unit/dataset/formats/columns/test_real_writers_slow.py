"""Files of pyarrow, fastavro, pandas, polars and DuckDB: counts and values."""

import json
import uuid

import duckdb
import pandas as pd
import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from gossipkv.settings.csv_dialect import CsvDialect
from tests.unit.dataset.formats.columns.real_writers import CASES, TABLE, check
from tests.unit.dataset.formats.cut_reader import CutReader, everything

SLOW = (
    "pyarrow default.parquet", "pyarrow int96.parquet", "pyarrow as Impala.parquet", "pyarrow nested.parquet",
    "pyarrow dictionaries.arrows", "pyarrow stripes.orc", "fastavro snappy.avro", "pandas.parquet", "pandas.feather",
    "pandas.csv.gz", "pandas.tsv", "polars.parquet", "polars.arrow", "polars.csv", "polars.ndjson", "duckdb.parquet",
    "duckdb.tsv", "duckdb.json",
)  # fmt: skip


def read(path, form=None, **options):
    reader = CutReader(path.read_bytes(), name=path.name)
    options = FileReading(**{"value": "*", **options})
    form = form or detect.detect_file(reader, options)
    return [(key, json.loads(value)) for key, value in everything(detect.batches(form, reader, options))[0]]


@pytest.mark.parametrize("case", [case for case in CASES if case.name in SLOW], ids=lambda case: case.name)
def test_defaults_are_read(tmp_path, case):
    """The night reads the other cases."""
    case.write(tmp_path / case.name, TABLE.select(case.columns))
    check(case, tmp_path / case.name)


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


def test_types_of_duckdb_that_arrow_lacks(tmp_path):
    """Within lists too; they count where they are read."""
    path = tmp_path / "types.parquet"
    days = "INTERVAL 3 DAYS"
    duckdb.sql(f"COPY (SELECT 'k' AS key, {days} AS i, [{days}] AS l, {{'a': 1}}::VARIANT AS v) TO '{path}'")
    for column, kind in (("i", "INTERVAL"), ("l", "INTERVAL"), ("v", "VARIANT")):
        with pytest.raises(SourceError, match=f"the column '{column}' has the type {kind}, which cannot be read"):
            read(path, value=column)
    reader = CutReader(path.read_bytes())
    assert everything(detect.batches("parquet", reader, FileReading("key", "key")))[0] == [(b"k", b"k")]


def test_the_dialect_reads_what_pandas_writes(tmp_path):
    path = tmp_path / "part.tsv"
    pd.DataFrame({"id": ["a", "b"], "text": ["x", 'say "y"']}).to_csv(path, sep="\t")
    dialect = CsvDialect(delimiter="\t")
    assert read(path, "csv", key="id", value=("text",), csv=dialect) == [
        (b"a", {"text": "x"}),
        (b"b", {"text": 'say "y"'}),
    ]
