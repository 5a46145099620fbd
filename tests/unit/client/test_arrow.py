"""Columns, as other libraries take them over by Arrow's C data interface."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.client._client import Column, Records, column_of, joined, records_of, stream_of
from gossipkv.errors import BadRequest, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=40)
PAIRS = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=20)


class Streamed:
    """An object of which libraries know only that it has a stream."""

    def __init__(self, batches: Iterator[Records]) -> None:
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:  # Arrow's name.
        return stream_of(self._batches)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_a_column_has_every_value(parts):
    """Bytes and None come out as they went in, of several parts in their order; an export outlives its column."""
    whole = joined([column_of(part) for part in parts])
    wanted = [value for part in parts for value in part]
    array = pa.array(whole)
    assert (len(whole), whole.null_count) == (len(wanted), wanted.count(None))
    del whole
    array.validate(full=True)
    assert array.type == pa.large_binary()
    assert array.to_pylist() == wanted


@given(st.lists(PAIRS, max_size=4), st.integers(0, 5))
def test_records_are_batches_and_streams(pages, least):
    """A stream has the records of all batches, also of those that were cut to their first records."""
    batches = [records_of(page).first(least + number) for number, page in enumerate(pages)]
    table = pa.table(Streamed(iter(batches)))
    table.validate(full=True)
    wanted = [pair for number, page in enumerate(pages) for pair in page[: least + number]]
    assert table.schema == pa.schema({"key": pa.large_binary(), "value": pa.large_binary()})
    assert [*zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)] == wanted
    for batch in batches:
        assert pa.table(batch).num_rows == len(batch) == pa.record_batch(batch).num_rows


@given(st.lists(st.one_of(st.none(), st.text(max_size=3).map(str.encode), st.binary(max_size=3)), max_size=9))
def test_only_texts_are_read_as_texts(values):
    """A column of texts has Arrow's type of texts; one value that is none is an error, wherever it is cut."""
    try:
        wanted = [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError:
        with pytest.raises(BadRequest, match="not valid UTF-8"):
            column_of(values).as_text()
    else:
        array = pa.array(column_of(values).as_text())
        array.validate(full=True)
        assert (array.type, array.to_pylist()) == (pa.large_string(), wanted)


def test_characters_across_values_are_no_texts():
    """Two values that are a text only together are no texts."""
    with pytest.raises(BadRequest, match="within a character"):
        column_of([b"\xc3", b"\xa9"]).as_text()
    with pytest.raises(BadRequest, match="within a character"):
        records_of([(b"k", b"a\xc3"), (b"l", b"\xa9")]).as_text()


def test_an_error_of_a_page_reaches_the_consumer():
    """A stream that fails says why, and its batches until then are whole."""

    def pages() -> Iterator[Records]:
        yield records_of([(b"k", b"v")])
        raise Unavailable("no node could be reached")

    reader = pa.RecordBatchReader.from_stream(Streamed(pages()))
    assert reader.read_next_batch().num_rows == 1
    with pytest.raises(OSError, match="Unavailable: no node could be reached"):
        reader.read_next_batch()


def test_what_is_exported_is_released_once():
    """No reference is left of a column once its consumers are gone, whether they took it over or not."""
    column, records = column_of([b"x", None]), records_of([(b"k", b"v")])
    before = [sys.getrefcount(thing) for thing in (column, records.keys, records.values)]
    for _ in range(3):
        column.__arrow_c_array__()
        records.__arrow_c_array__()
        records.__arrow_c_stream__()
        pa.array(column)
        pa.table(records)
        pa.record_batch(records).column(1)
    child = pa.record_batch(records).column(0)  # It is moved out of its parent.
    gc.collect()
    assert child.to_pylist() == [b"k"]
    del child
    assert [sys.getrefcount(thing) for thing in (column, records.keys, records.values)] == before


def test_a_dropped_stream_lets_its_source_go():
    """A stream that nobody reads to its end keeps nothing alive."""

    class Source:
        def __iter__(self) -> Source:
            return self

        def __next__(self) -> Records:
            return records_of([])

    source = Source()
    seen = weakref.ref(source)
    reader = pa.RecordBatchReader.from_stream(Streamed(source))
    reader.read_next_batch()
    del source, reader
    gc.collect()
    assert seen() is None


def test_columns_are_made_by_answers_alone():
    """The types are not constructors of anything."""
    assert (len(Column()), len(Records())) == (0, 0)
    with pytest.raises(TypeError):
        column_of(["text"])
