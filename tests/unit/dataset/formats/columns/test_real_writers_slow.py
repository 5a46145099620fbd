"""Files as pandas, polars and DuckDB write them by default: counts and values."""

import json
import uuid

import duckdb
import pandas as pd
import polars as pl
import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
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


def test_the_dialect_reads_what_pandas_writes(tmp_path):
    path = tmp_path / "part.tsv"
    pd.DataFrame({"id": ["a", "b"], "text": ["x", 'say "y"']}).to_csv(path, sep="\t")
    dialect = CsvDialect(delimiter="\t")
    assert read(path, "csv", key="id", value=("text",), csv=dialect) == [
        (b"a", {"text": "x"}),
        (b"b", {"text": 'say "y"'}),
    ]
