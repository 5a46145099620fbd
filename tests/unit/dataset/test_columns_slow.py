"""Datasets of columns in a node with its real building child: rows, the memory for columns, and doubtful text."""

import json

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from gossipkv.settings.csv_dialect import CsvDialect
from gossipkv.settings.databases import DatabaseSettings
from tests.unit.dataset.world import active, get, until
from tests.world.logs import capture_logs

MEMORY = 256 << 20


def make(world, name, write):
    """Put a version whose files `write` makes in the directory that it gets."""
    place = world.root / "making"
    place.mkdir()
    write(place)
    (world.source / "db").mkdir(exist_ok=True)
    place.rename(world.source / "db" / name)


async def test_rows_of_duckdb_in_directories(world):
    """DuckDB writes one page of a column chunk, and a directory for each country."""
    query = (
        "SELECT CASE i % 2 WHEN 0 THEN 'DE' ELSE 'FR' END AS country, i AS id, repeat(md5(i::VARCHAR), 4) AS text, "
        "CASE WHEN i % 3 = 0 THEN NULL ELSE uuid() END AS u FROM range(200000) t(i)"
    )

    def write(place):
        duckdb.sql(f"COPY ({query}) TO '{place}' (FORMAT parquet, PARTITION_BY (country), OVERWRITE_OR_IGNORE)")

    make(world, "v1", write)
    settings = DatabaseSettings(key=("country", "id"), separator=":", value="*")
    async with world.node(build_memory=MEMORY, databases={"db": settings}) as library:
        await active(library, "v1")
        row = json.loads(get(library, b"FR:7"))
        assert (row["country"], row["id"], len(row["text"]), len(row["u"])) == ("FR", 7, 128, 36)
        assert json.loads(get(library, b"DE:0")).keys() == {"country", "id", "text"}
        assert get(library, b"FR:0") is None
        assert library.status()["db"]["versions"]["v1"]["records"] == 200_000


@pytest.mark.parametrize(("rows", "is_built"), [(40_000, True), (120_000, False)])
async def test_large_pages_get_the_memory_that_they_need(world, rows, is_built):
    """A page of 40 MB needs more than half, and one of 120 MB more than there is; the error says how much would do."""
    value = bytes(range(250)) * 4
    table = pa.table({"key": [b"%d" % row for row in range(rows)], "value": [value] * rows})

    def write(place):
        options = {"use_dictionary": False, "compression": "none", "data_page_size": 1 << 30, "max_rows_per_page": rows}
        pq.write_table(table, place / "part-0.parquet", row_group_size=rows, **options)

    make(world, "v1", write)
    async with world.node(build_memory=MEMORY) as library:
        if is_built:
            await active(library, "v1")
            assert get(library, b"39999") == value
        else:
            await until(lambda: library.status()["db"]["versions"].get("v1", {}).get("error"))
            assert "build_memory = " in library.status()["db"]["versions"]["v1"]["error"]["message"]


async def test_doubtful_text_is_served_and_said(world):
    """The defaults of pandas are served with header and index; the status and the log name them."""

    def write(place):
        pd.DataFrame({"user_id": ["u1", "u2", "u3"], "name": ["Ada", "Bob", "Eve"]}).to_csv(place / "part-0", sep="\t")

    make(world, "v1", write)
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            assert get(library, b"1") == b"u2\tBob"
            (warning,) = library.status()["db"]["versions"]["v1"]["warnings"]
            assert library.conditions()["db"]["versions"]["v1"]["warnings"] == [warning]
    assert "the first line looks like a header; the first column looks like an index" in warning
    assert [line["reason"] for line in logs if line["event"] == "source_doubtful"] == [warning]


async def test_text_of_another_encoding_is_told_by_file_and_line(world):
    """The second file is told by a build in lanes, too; with the encoding, keys are found by their text."""
    size = 40 << 20

    def write(place):
        (place / "part-0.csv").write_bytes(b"key,value\na,1\n" + b"b" * 500 + b",x\n")
        row = b"k," + b"x" * 8000 + b"\n"
        (place / "part-1.csv").write_bytes(b"key,value\n" + row * (size // len(row)) + "café,fünf\n".encode("cp1252"))

    make(world, "v1", write)
    settings = DatabaseSettings(format="csv")
    async with world.node(build_memory=MEMORY, build_lanes=2, databases={"db": settings}) as library:
        await active(library, "v1")
        assert get(library, "café".encode("cp1252")) == "fünf".encode("cp1252")
        (warning,) = library.status()["db"]["versions"]["v1"]["warnings"]
        assert f"/v1/part-1.csv: line {size // 8003 + 2} is not UTF-8" in warning
    make(world, "v2", write)
    settings = DatabaseSettings(format="csv", csv=CsvDialect.read({"encoding": "cp1252"}))
    async with world.node(build_memory=MEMORY, build_lanes=2, databases={"db": settings}) as library:
        await active(library, "v2")
        assert get(library, "café".encode()) == "fünf".encode()
        assert "warnings" not in library.status()["db"]["versions"]["v2"]


async def test_the_same_text_as_csv(world):
    def write(place):
        pd.DataFrame({"user_id": ["u1", "u2"], "name": ["Ada", 'Bob "B"']}).to_csv(place / "part-0.tsv", sep="\t")

    make(world, "v1", write)
    settings = DatabaseSettings(format="csv", key="user_id", value=("name",), encoding="msgpack")
    async with world.node(build_memory=MEMORY, databases={"db": settings}) as library:
        await active(library, "v1")
        assert get(library, b"u2") == b'\x81\xa4name\xa7Bob "B"'
        assert "warnings" not in library.status()["db"]["versions"]["v1"]
