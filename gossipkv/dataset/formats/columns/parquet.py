"""Parquet, through pyarrow.

pyarrow bounds no memory by itself, so these bounds are set first, and then rows are read in batches:

* The footer has at most `MAX_FOOTER_BYTES`.
* The pages that are in memory at once, two of each column, may have half of `max_columns_bytes`: pyarrow holds a page
  as it is stored and decompressed, and the page before until the next one is there.  The footer has only the sizes of
  column chunks, so the headers of pages are read (`parquet_pages`): most writers make pages of 1 MiB, and DuckDB one
  page of a chunk.
* Rows are read in batches of `BATCH_BYTES`, by the mean row size in the densest page.  With a dictionary each row
  counts as its longest value; with deltas of strings, as a whole page.

Measured: one page of 20, 40 or 80 MB adds 43, 82 or 156 MB to the process, and two of 20 MB add 79 MB, whether
compressed or not.  pyarrow may crash on hostile bytes, but does so in the process that builds, never in one that
serves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet as pq

from gossipkv.dataset.formats.columns.arrow_file import ArrowFile
from gossipkv.dataset.formats.columns.arrow_rows import UNREADABLE, ArrowRows, RowPlace, refusing
from gossipkv.dataset.formats.columns.arrow_values import TYPES, bytes_column
from gossipkv.dataset.formats.columns.parquet_pages import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    ParquetPage,
    pages,
)
from gossipkv.dataset.formats.columns.table_rows import TableRows
from gossipkv.dataset.formats.reading import enough_for_columns, refusal
from gossipkv.errors import SourceError
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
ENCRYPTED = "the Parquet file is encrypted; encrypted files cannot be read"
SIGNATURE_BYTES = 28  # It follows a footer that is not encrypted where columns are; pyarrow would end the process.
TAIL_BYTES = 8  # The size of the footer, and the magic.

# This suffices for a thousand row groups of a thousand columns; it becomes about ten times that in memory.
MAX_FOOTER_BYTES = 16 << 20

# Rows of one batch: enough that a call costs nothing, few enough to be in the cache when they are sorted.
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20

BUFFER_BYTES = 256 << 10  # The size of pyarrow's reads.

# The memory for reading is this many times the pages, and a part for batches and buffers.
PAGE_COPIES = 2
BESIDE_PAGES_BYTES = 24 << 20

# Bytes of a column chunk that parquet-mr did not count before this version (PARQUET-816).
MISCOUNTED_BYTES = 100
COUNTS_RIGHT = (1, 2, 9)

# Types that pyarrow reads as plain bytes; of the others, ENUM is text, and BSON, GEOMETRY and GEOGRAPHY stay bytes.
UNREADABLE_KINDS = {"Interval", "Undefined"}

# In lists and structs a value of a dictionary counts as at most this many times the mean one.
NESTED_SKEW = 64


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their row groups.

    Raises:
        SourceError: with `file` and `offset`, and `row` (from 1) for an error in a row.
    """
    source = _ParquetFile.open(reader, options)
    file = source.parquet(())
    with refusing(reader.name, source.end, "the schema cannot be read"):
        schema = file.schema_arrow
    table = TableRows(reader.name, source.end, schema, options) if options.schema else None
    schema = _annotated(schema, source.metadata.schema) if table is None else table.schema
    rows = ArrowRows(reader.name, schema, options, offset=source.end)
    names = rows.columns if table is None else table.stored(rows.columns)
    columns = [leaf for name in names for leaf in _Leaf.of(source, name)]
    numbered = source.parquet(tuple(leaf.name for leaf in columns if leaf.is_shared))
    batch = RecordBatch()
    before = 0
    for number in range(source.metadata.num_row_groups):
        if source.metadata.row_group(number).num_rows == 0:
            continue
        group = _check_row_group(source, number, columns)
        at_once = _rows_at_once(source, numbered, group)
        for arrow_rows in _arrow_batches(source, file, group, names, at_once):
            of_table = arrow_rows if table is None else table.fit(arrow_rows, rows.columns, before)
            yield from rows.records(of_table, RowPlace(reader.name, group.start, "row group", before), batch)
            before += arrow_rows.num_rows


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ParquetFile:
    reader: Readable
    data: ArrowFile
    options: FileReading
    end: int  # Start of the footer.
    metadata: pq.FileMetaData
    miscounted_bytes: int

    @classmethod
    def open(cls, reader: Readable, options: FileReading) -> _ParquetFile:
        # A build uses the cores itself, by files.
        pa.set_cpu_count(1)
        end = _footer_start(reader)
        with refusing(reader.name, end, "the footer cannot be read"):
            data = ArrowFile(reader)
            metadata = pq.read_metadata(data)
            if reader.size_bytes - TAIL_BYTES - end - metadata.serialized_size == SIGNATURE_BYTES:
                raise refusal(reader.name, end, ENCRYPTED)
            miscounted_bytes = MISCOUNTED_BYTES if _miscounts(metadata.created_by or "") else 0
        return cls(reader, data, options, end, metadata, miscounted_bytes)

    def parquet(self, numbered: tuple[str, ...]) -> pq.ParquetFile:
        """Return a reader of rows; `numbered` names the columns that are read as indices into their dictionaries."""
        with refusing(self.reader.name, self.end, "the schema cannot be read"):
            return pq.ParquetFile(
                self.data,
                metadata=self.metadata,
                read_dictionary=list(numbered),
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",  # The years of Spark's do not fit into nanoseconds.
                arrow_extensions_enabled=not numbered,
            )

    def refusal(self, offset: int, reason: str) -> SourceError:
        return refusal(self.reader.name, offset, reason)


def _miscounts(created_by: str) -> bool:
    """Return True for a parquet-mr before `COUNTS_RIGHT`; the first ones give no version."""
    found = re.match(r"parquet-mr(?: version (\d+)\.(\d+)\.(\d+)|$)", created_by)
    return found is not None and tuple(int(part or 0) for part in found.groups()) < COUNTS_RIGHT


def _footer_start(reader: Readable) -> int:
    """Return the start of the footer.  Raises SourceError if there is none."""
    size = reader.size_bytes
    if size < len(MAGIC) + TAIL_BYTES:
        raise refusal(reader.name, 0, f"the file has {size:,} bytes, which is too short for Parquet")
    head = reader.read_at(0, len(MAGIC))
    tail = reader.read_at(size - TAIL_BYTES, TAIL_BYTES)
    if ENCRYPTED_MAGIC in {head, tail[4:]}:
        raise refusal(reader.name, 0, ENCRYPTED)
    if head != MAGIC:
        raise refusal(reader.name, 0, f"the file begins with {head!r}, not with {MAGIC!r}, so it is not Parquet")
    if tail[4:] != MAGIC:
        reason = f"the file ends with {tail[4:]!r}, not with {MAGIC!r}; it may be truncated"
        raise refusal(reader.name, size - len(MAGIC), reason)
    footer = int.from_bytes(tail[:4], "little")
    if footer > size - TAIL_BYTES - len(MAGIC) or footer > MAX_FOOTER_BYTES:
        raise refusal(
            reader.name, size - TAIL_BYTES,
            f"the footer claims {footer:,} bytes in a file of {size:,} bytes; the limit is {MAX_FOOTER_BYTES:,} bytes",
        )  # fmt: skip
    return size - TAIL_BYTES - footer


def _annotated(schema: pa.Schema, stored: pq.ParquetSchema) -> pa.Schema:
    """Return the schema with what it lacks of the file's: names of types that have no meaning in Arrow, and texts."""
    kinds = {stored.column(at).path: str(stored.column(at).logical_type) for at in range(len(stored))}
    lost = {path: kind.upper() for path, kind in kinds.items() if kind in UNREADABLE_KINDS}
    for at, field in enumerate(schema):
        inner = (kind for path, kind in lost.items() if f"{path}.".startswith(f"{field.name}."))
        kind = next(inner, "VARIANT" if _has_variant(field.type) else None)
        if kind is not None:
            schema = schema.set(at, field.with_metadata({UNREADABLE: kind}))
        elif kinds.get(field.name) == "Enum":
            schema = schema.set(at, field.with_type(pa.string()))
    return schema


def _has_variant(kind: pa.DataType) -> bool:
    """Return True for a group of VARIANT, by its form: Arrow has no name for it, and some writers give none."""
    inner = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
    is_form = TYPES.is_struct(kind) and {"metadata", "value"} <= inner.keys() <= {"metadata", "value", "typed_value"}
    is_variant = is_form and TYPES.is_binary(inner["metadata"]) and TYPES.is_binary(inner["value"])
    return is_variant or any(map(_has_variant, inner.values()))


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column as it is stored; a list, a map or a struct has several."""

    name: str  # With the names of what is around it.
    number: int
    width: int  # The size of every value; 0 if sizes differ.
    is_nested: bool
    is_repeated: bool  # Rows may have several values.

    @classmethod
    def of(cls, source: _ParquetFile, name: str) -> list[_Leaf]:
        """Return the leaves of a top-level column."""
        schema = source.metadata.schema
        columns = [schema.column(number) for number in range(source.metadata.num_columns)]
        numbers = [number for number, column in enumerate(columns) if column.path == name]
        numbers = numbers or [number for number, column in enumerate(columns) if column.path.startswith(f"{name}.")]
        return [cls._at(columns[number], number, name) for number in numbers]

    @classmethod
    def _at(cls, column: pq.ColumnSchema, number: int, name: str) -> _Leaf:
        widths = {"FIXED_LEN_BYTE_ARRAY": column.length, "BYTE_ARRAY": 0}
        is_repeated = column.max_repetition_level > 0
        is_nested = column.path != name or is_repeated
        return cls(column.path, number, widths.get(column.physical_type, 12), is_nested, is_repeated)

    @property
    def is_shared(self) -> bool:
        """Return True if its dictionary can be read without decoding the rows."""
        return not (self.width or self.is_nested)


# -- row groups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowGroup:
    number: int
    start: int
    row_bytes: float  # The size of a row where rows are largest, without the dictionary's part.
    dictionaries: tuple[str, ...]  # The columns with a dictionary whose longest value counts.


def _check_row_group(source: _ParquetFile, number: int, leaves: list[_Leaf]) -> _RowGroup:
    """Measure a row group by the headers of its pages."""
    group = source.metadata.row_group(number)
    starts = []
    dictionaries = []
    row_bytes = 0.0
    pages_bytes = 0
    for leaf in leaves:
        chunk = group.column(leaf.number)
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        stop = min(source.end, start + chunk.total_compressed_size + source.miscounted_bytes)
        where = f"column {leaf.name!r} of row group {number}"
        if not len(MAGIC) <= start <= start + chunk.total_compressed_size <= source.end:
            raise source.refusal(source.end, f"{where} lies from byte {start:,} to {stop:,}, outside the data")
        if chunk.num_values != group.num_rows and not leaf.is_repeated:
            raise source.refusal(start, f"{where} has {chunk.num_values:,} values for {group.num_rows:,} rows")
        starts.append(start)
        weight = _weigh(leaf, pages(source.reader, start, stop, chunk.num_values))
        row_bytes += weight.value_bytes * max(1.0, chunk.num_values / group.num_rows)
        dictionaries += [leaf.name] if weight.has_dictionary and leaf.is_shared else []
        pages_bytes += weight.pages_bytes
        _check_memory(source, start, leaf, pages_bytes)
    return _RowGroup(number, min(starts, default=source.end), row_bytes, tuple(dictionaries))


def _check_memory(source: _ParquetFile, offset: int, leaf: _Leaf, pages_bytes: int) -> None:
    needed_bytes = PAGE_COPIES * pages_bytes + BESIDE_PAGES_BYTES
    if needed_bytes > source.options.max_columns_bytes:
        reason = (
            f"the largest pages of the columns up to {leaf.name!r} have {pages_bytes:,} bytes and need "
            f"{needed_bytes:,} bytes to be read; the limit is {source.options.max_columns_bytes:,} bytes; read fewer "
            "columns, or write smaller pages or row groups (parquet.page.size in Spark, ROW_GROUP_SIZE in DuckDB); "
            + enough_for_columns(needed_bytes)
        )
        name = source.reader.name
        raise SourceError(
            f"{name}: byte {offset:,}: {reason}",
            {"file": name, "offset": offset, "reason": reason, "columns_bytes": needed_bytes},
        )


@dataclass(frozen=True, slots=True)
class _Weight:
    value_bytes: float  # In the densest page.
    pages_bytes: int  # The largest two pages in a row, and the dictionary.
    has_dictionary: bool


def _weigh(leaf: _Leaf, found: Iterator[ParquetPage]) -> _Weight:
    densest = leaf.width + 1.0
    largest = before = dictionary_bytes = 0
    shared_bytes = 0.0
    given_up = False  # Set once the writer has gone on without the dictionary.
    for page in found:
        if page.kind == DICTIONARY_PAGE:
            dictionary_bytes = max(dictionary_bytes, page.raw_bytes)
            shared_bytes = min(page.raw_bytes, NESTED_SKEW * page.raw_bytes / max(1, page.values))
            continue
        largest, before = max(largest, before + page.raw_bytes), page.raw_bytes
        if page.encoding not in DICTIONARY_ENCODINGS:
            given_up = True
        elif given_up:
            # No writer returns to a dictionary, and a look at the first row would miss it.
            densest = max(densest, dictionary_bytes)
        if not leaf.width:
            densest = max(densest, page.raw_bytes / (1 if page.encoding == DELTA_BYTE_ARRAY else max(1, page.values)))
    if leaf.is_nested and not leaf.width:
        densest += shared_bytes
    return _Weight(densest, largest + dictionary_bytes, dictionary_bytes > 0)


def _rows_at_once(source: _ParquetFile, numbered: pq.ParquetFile, group: _RowGroup) -> int:
    """Return the number of rows to read at once, for any content; `numbered` reads rows as value numbers."""
    row_bytes = group.row_bytes
    for column in group.dictionaries:
        for rows in _arrow_batches(source, numbered, group, [column], 1):
            array = rows.column(column)
            with refusing(source.reader.name, group.start, f"the dictionary of the column {column!r} is damaged"):
                row_bytes += bytes_column(array.dictionary).longest()
            break
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, row_bytes))))


# -- rows --------------------------------------------------------------------------------------------------------------


def _arrow_batches(
    source: _ParquetFile, file: pq.ParquetFile, group: _RowGroup, names: list[str], at_once: int
) -> Iterator[pa.RecordBatch]:
    problem = f"row group {group.number} cannot be read"
    with refusing(source.reader.name, group.start, problem):
        found = file.iter_batches(batch_size=at_once, row_groups=[group.number], columns=names, use_threads=False)
    while True:
        with refusing(source.reader.name, group.start, problem):
            rows = next(found, None)
        if rows is None:
            return
        yield rows
        del rows  # Release the rows before the next ones are read.
