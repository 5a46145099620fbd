"""Rows of a data file by the schema of a snapshot: fields by id or name, wider types, values of the log, deletions."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from gossipkv.dataset.formats.columns.table_rows import FIELD_ID, NAMES_WITHOUT_ID, STORED_NAME, TableRows, schema_text
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError

AT = datetime(2024, 1, 31, 12, 30, 0, 500_000)  # noqa: DTZ001  # It has no zone.


def field(name, kind, **metadata):
    keys = {"id": FIELD_ID, "stored": STORED_NAME, "names": NAMES_WITHOUT_ID}
    return pa.field(name, kind, metadata={keys[key]: text for key, text in metadata.items()})


def fitted(stored, *wanted, values=(), deleted=None, first=0):
    """Return rows of a file as rows of a snapshot with these fields."""
    options = FileReading(schema=schema_text(pa.schema(wanted)), partition=values, deleted=deleted)
    rows = TableRows("f", 0, stored.schema, options)
    batch = stored.select(rows.stored(rows.schema.names)).combine_chunks().to_batches()[0]
    return rows.fit(batch, rows.schema.names, first).to_pylist()


def test_fields_are_found_by_their_names_in_files():
    stored = pa.table({"c1": pa.array([1, None], pa.int32()), "x": ["old", "old"], "day": ["file", "file"]})
    text = pa.string()
    wanted = [field("n", pa.int64(), stored="c1"), field("x", text, stored="c2"), field("day", text, stored="")]
    rows = [{"n": 1, "x": None, "day": "log"}, {"n": None, "x": None, "day": "log"}]
    assert fitted(stored, *wanted, values=(("day", "log"),)) == rows


def test_fields_within_others_are_found_by_their_ids():
    inner = pa.struct([field("old", pa.int32(), id="3"), field("gone", pa.int32(), id="4")])
    lists = pa.array([[{"old": 1, "gone": 2}], None, []], pa.list_(inner))
    maps = pa.array([[("k", {"old": 5, "gone": 6})], None, []], pa.map_(pa.string(), inner))
    stored = pa.table([lists, maps], schema=pa.schema([field("l", lists.type, id="1"), field("m", maps.type, id="2")]))
    new = pa.struct([field("gone", pa.string(), id="5"), field("new", pa.int64(), id="3")])
    wanted = [field("map", pa.map_(pa.string(), new), id="2"), field("list", pa.list_(new), id="1")]
    one, five = {"gone": None, "new": 1}, {"gone": None, "new": 5}
    rows = [{"map": [("k", five)], "list": [one]}, {"map": None, "list": None}, {"map": [], "list": []}]
    assert fitted(stored, *wanted) == rows
    assert fitted(stored.slice(1), *wanted) == rows[1:]


def test_files_without_ids_need_names():
    stored = pa.table({"a": [1]})
    assert fitted(stored, field("b", pa.int64(), id="1", names='["a"]')) == [{"b": 1}]
    with pytest.raises(SourceError, match="have no ids"):
        fitted(stored, field("a", pa.int64(), id="1"))


@pytest.mark.parametrize(("text", "kind", "value"), [
    ("2024-01-31", pa.date32(), date(2024, 1, 31)), ("-7", pa.int8(), -7), ("true", pa.bool_(), True),
    ("1.5", pa.float64(), 1.5), ("x", pa.large_string(), "x"), ("7.10", pa.decimal128(9, 2), Decimal("7.10")),
    ("2024-01-31 12:30:00.5", pa.timestamp("us"), AT), (None, pa.int64(), None),
    ("2024-01-31T12:30:00.500000Z", pa.timestamp("us", "UTC"), AT.replace(tzinfo=UTC)),
    ("2024-01-31 12:30:00.5", pa.timestamp("us", "UTC"), AT.replace(tzinfo=UTC)),
])  # fmt: skip
def test_texts_of_the_log_become_values(text, kind, value):
    wanted = [field("key", pa.int64()), field("p", kind)]
    assert fitted(pa.table({"key": [1]}), *wanted, values=(("p", text),)) == [{"key": 1, "p": value}]


@pytest.mark.parametrize(("text", "kind"), [("x", pa.int64()), ("x", pa.binary())])
def test_other_texts_of_the_log_are_refused(text, kind):
    with pytest.raises(SourceError, match=f"the value '{text}' of the column 'p' in the log cannot be read"):
        fitted(pa.table({"key": [1]}), field("p", kind), values=(("p", text),))


def test_types_grow_without_loss():
    raw = pa.array([b"\x12" * 16], pa.binary(16))
    stored = pa.table({"n": pa.array([1], pa.int32()), "t": pa.array([1_500], pa.timestamp("ns")), "u": raw})
    (row,) = fitted(stored, field("n", pa.float64()), field("u", pa.uuid()))
    assert (row["n"], row["u"].hex) == (1.0, "12" * 16)
    with pytest.raises(
        SourceError, match=r"the column 't' has the type timestamp\[ns\], which cannot be converted to timestamp\[us\]"
    ):
        fitted(stored, field("t", pa.timestamp("us")))


def test_deleted_rows_are_left_out():
    stored = pa.table({"n": range(10, 20)})
    gone = {12, 15, 100}

    def deleted(first, count):
        return gone & set(range(first, first + count))

    rows = fitted(stored, field("n", pa.int64()), deleted=deleted, first=10)
    assert [row["n"] for row in rows] == [10, 11, 13, 14, 16, 17, 18, 19]
