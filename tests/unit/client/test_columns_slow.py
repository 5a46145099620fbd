"""Answers as columns, from every client to the libraries that people use."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import trio

import gossipkv
from gossipkv.client import blocking
from gossipkv.errors import BadRequest, GossipKVError
from tests.unit.client.behaviours import RECORDS
from tests.unit.client.fake_node import FakeNode, store

TEXTS = {key: value for key, value in RECORDS.items() if key.isascii()}
KEYS = [*TEXTS, b"none"]
VALUES = [value.decode() for value in TEXTS.values()] + [None]


def in_threads(node, read):
    """Return what `read` reads of a dataset: a column, and a stream of batches."""
    with blocking.connect(node.address, timeout_ms=60_000) as client:
        return read(client.dataset("geo"))


def under_trio(node, read):
    async def main():
        async with gossipkv.connect(node.address, timeout_ms=60_000) as client:
            found = read(client.dataset("geo"))
            return await (found.read_all() if hasattr(found, "read_all") else found)

    return trio.run(main)


every_client = pytest.mark.parametrize("ask", [in_threads, under_trio])


@every_client
def test_a_column_is_taken_by_every_library(ask):
    """pyarrow, polars and pandas read a column of texts; nulls stay nulls."""
    with FakeNode(store(TEXTS)) as node:
        column = ask(node, lambda data: data.get_many(KEYS, into="arrow", as_text=True))
        raw = ask(node, lambda data: data.get_many(KEYS, into="arrow"))
    assert pa.array(column).to_pylist() == VALUES
    assert pl.Series(column).to_list() == VALUES
    series = pd.Series.from_arrow(column)
    assert [None if pd.isna(value) else value for value in series] == VALUES
    assert pa.array(raw).to_pylist() == [None if value is None else value.encode() for value in VALUES]


@every_client
@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas", "duckdb"])
def test_a_scan_is_a_table_for_every_library(ask, library):
    """All batches of a scan together are one table."""
    read = {
        "pyarrow": lambda records: pa.table(records).to_pydict(),
        "polars": lambda records: pl.DataFrame(records).to_dict(as_series=False),
        "pandas": lambda records: pd.DataFrame.from_arrow(records).to_dict("list"),
        "duckdb": lambda records: duckdb.sql("select * from records").pl().to_dict(as_series=False),
    }[library]
    table = {"key": [key.decode() for key in sorted(TEXTS)], "value": [TEXTS[key].decode() for key in sorted(TEXTS)]}
    with FakeNode(store(TEXTS)) as node:
        if ask is in_threads:  # The library asks for the pages.
            found = ask(node, lambda data: read(data.scan(into="arrow", as_text=True)))
        else:
            found = read(ask(node, lambda data: data.scan(into="arrow", as_text=True)))
    assert found == table


async def test_batches_follow_the_cursor_under_trio():
    """Batches have exactly the records that were asked for, and a scan without columns has no batches."""
    with FakeNode(store(RECORDS)) as node:
        async with gossipkv.connect(node.address, timeout_ms=60_000) as client:
            data = client.dataset("geo")
            batches = [batch async for batch in data.scan(into="arrow", limit=21, start=b"key010")]
            assert sum(map(len, batches)) == 21
            assert len(batches) > 1
            found = [row["key"] for batch in batches for row in pa.record_batch(batch).to_pylist()]
            assert found == sorted(key for key in RECORDS if key >= b"key010")[:21]
            with pytest.raises(BadRequest, match="loop over this scan"):
                await data.scan().read_all()


def test_an_error_amid_a_scan_names_its_reason():
    """The library's error has the client's text."""
    with FakeNode(store(RECORDS)) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        with pytest.raises(OSError, match="BadRequest: as_text: a value is not valid UTF-8"):
            pa.table(client.dataset("geo").scan(into="arrow", as_text=True))
        records = client.dataset("geo").scan(into="arrow", as_text=True)
        with pytest.raises(GossipKVError, match="read bytes"):
            list(records)


@pytest.mark.parametrize(("options", "reason"), [
    ({"into": "pandas"}, "into must be 'arrow' or None"), ({"as_text": True}, "as_text needs into"),
])  # fmt: skip
def test_wrong_options_are_refused(options, reason):
    """A wrong option is an error before anything is sent."""
    with FakeNode(store(RECORDS)) as node, blocking.connect(node.address, timeout_ms=60_000) as client:
        for database in (client.dataset("geo"), client.table("geo")):
            with pytest.raises(BadRequest, match=reason):
                database.get_many([b"k"], **options)
            with pytest.raises(BadRequest, match=reason):
                list(database.scan(**options))
