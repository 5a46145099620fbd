"""Parquet: a top-level column of keys and one of values, read through pyarrow.

Both are byte strings (binary, string, fixed-size, dictionary-encoded or not) and served as they are.  Nulls and other
types are errors.  Records stay in Arrow's buffers.  pyarrow bounds no memory, so these bounds are set first:

* The footer has at most `MAX_FOOTER_BYTES`, a page two fifths of `max_block_bytes` (`parquet_pages`).
* Rows are read in batches of `BATCH_BYTES`, by the mean row size in the densest page.  With a dictionary each row
  counts as its longest value; with deltas of strings, as a whole page.

A process grew by 45 MB and five times the largest page, however large the row group.  Rejected: reading whole row
groups, and `read_dictionary` (ten times slower if a writer gave up its dictionary).  pyarrow may crash on hostile
bytes, but does so in the process that builds, never in one that serves.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.formats._formats import Column, fill_columns
from gossipkv.dataset.formats.parquet_pages import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    ParquetPage,
    pages,
)
from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, enough_memory, refusal
from gossipkv.errors import SourceError
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import pyarrow as pa
    from pyarrow import parquet as pq

    from gossipkv.dataset.formats.reading import FileReading, Readable

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL_BYTES = 8  # The size of the footer, and the magic.

# This suffices for a thousand row groups of a thousand columns; it becomes about ten times that in memory.
MAX_FOOTER_BYTES = 16 << 20

# Rows of one batch: enough that a call costs nothing, few enough to be in the cache when they are sorted.
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20
SHOWN_COLUMNS = 12  # A message names this many columns of a schema.

BUFFER_BYTES = 256 << 10  # The size of pyarrow's reads.
WINDOW_BYTES = 4 << 20  # The size of our reads: a remote source reads ahead this far anyway.


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their row groups.

    Raises:
        SourceError: with `file` and `offset`, and `row` (from 1) for an error in a row; or pyarrow is not installed.
    """
    source = _ParquetFile.open(reader, options)
    names = list(dict.fromkeys((options.key, options.value)))
    columns = [_Column.find(source, name) for name in names]
    file, numbered = source.parquet([]), source.parquet(names)
    with source.refusing(source.end, "the schema cannot be read"):
        types = {field.name: field.type for field in file.schema_arrow}
    for name in names:
        _check_type(source, name, types.get(name))
    batch = RecordBatch()
    before = 0
    for number in range(source.metadata.num_row_groups):
        if source.metadata.row_group(number).num_rows == 0:
            continue
        group = _check_row_group(source, number, columns)
        at_once = _rows_at_once(source, numbered, group)
        for rows in _arrow_batches(source, file, group, names, at_once):
            place = _Place(source, group.start, before)
            keys = _rows(place, rows.column(options.key), options.key)
            values = keys if len(names) == 1 else _rows(place, rows.column(options.value), options.value)
            at = 0
            while at < rows.num_rows:
                at = fill_columns(batch, keys, values, at, options.max_value_bytes, group.start)
                if at < rows.num_rows and not batch.full:
                    raise _refused_row(place, keys, values, at)
                yield batch
                batch.clear()
            before += rows.num_rows


# -- the file ----------------------------------------------------------------------------------------------------------


class _Bytes(io.RawIOBase):
    """The file in the form that pyarrow wants."""

    def __init__(self, reader: Readable) -> None:
        super().__init__()
        self._reader = reader
        self._at = 0
        self._windows: list[tuple[int, bytes]] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._reader.size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._reader.size_bytes
        end = end if size < 0 else min(end, self._at + size)
        parts = []
        while self._at < end:
            start, window = self._window(end - self._at)
            parts.append(window[self._at - start : end - start])
            self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _window(self, least: int) -> tuple[int, bytes]:
        """Return the bytes around the position and their start; two columns are read alternately, so two are kept."""
        for start, window in self._windows:
            if start <= self._at < start + len(window):
                return start, window
        size = min(max(least, WINDOW_BYTES), self._reader.size_bytes - self._at)
        if len(self._windows) > 1:
            del self._windows[0]  # Release it before the next one is read.
        self._windows.append((self._at, self._reader.read_at(self._at, size)))
        return self._windows[-1]


@dataclass(frozen=True, slots=True)
class _ParquetFile:
    arrow: ModuleType
    reader: Readable
    data: _Bytes
    options: FileReading
    end: int  # Start of the footer.
    metadata: pq.FileMetaData

    @classmethod
    def open(cls, reader: Readable, options: FileReading) -> _ParquetFile:
        try:
            arrow = importlib.import_module("pyarrow")
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            reason = "Parquet is read through pyarrow, which is not installed: pip install 'gossipkv[parquet]'"
            raise SourceError(
                f"{reader.name}: {reason}", {"file": reader.name, "offset": 0, "reason": reason}
            ) from error
        # A build uses the cores itself, by files.
        arrow.set_cpu_count(1)
        end = _footer_start(reader)
        with _refusing(arrow, reader.name, end, "the footer cannot be read"):
            data = _Bytes(reader)
            return cls(arrow, reader, data, options, end, parquet.read_metadata(data))

    def parquet(self, numbered: list[str]) -> pq.ParquetFile:
        """Return a reader of rows; `numbered` names the columns that are read as indices into their dictionaries."""
        with self.refusing(self.end, "the schema cannot be read"):
            return importlib.import_module("pyarrow.parquet").ParquetFile(
                self.data,
                metadata=self.metadata,
                read_dictionary=numbered,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
            )

    def refusal(self, offset: int, reason: str) -> SourceError:
        return refusal(self.reader.name, offset, reason)

    def refusing(self, offset: int, problem: str) -> contextlib.AbstractContextManager[None]:
        """Convert all errors of pyarrow into the one error."""
        return _refusing(self.arrow, self.reader.name, offset, problem)


@contextlib.contextmanager
def _refusing(arrow: ModuleType, name: str, offset: int, problem: str) -> Iterator[None]:
    try:
        yield
    except (arrow.ArrowException, LookupError, OSError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise refusal(name, offset, f"{problem}: {reason}") from error


def _footer_start(reader: Readable) -> int:
    """Return the start of the footer.  Raises SourceError if there is none."""
    size = reader.size_bytes
    if size < len(MAGIC) + TAIL_BYTES:
        raise refusal(reader.name, 0, f"{size:,} bytes are no Parquet file")
    head = reader.read_at(0, len(MAGIC))
    tail = reader.read_at(size - TAIL_BYTES, TAIL_BYTES)
    if ENCRYPTED_MAGIC in {head, tail[4:]}:
        raise refusal(reader.name, 0, "an encrypted Parquet file; there is no way to give it a key")
    if head != MAGIC:
        raise refusal(reader.name, 0, f"no Parquet file: it begins with {head!r}, not with {MAGIC!r}")
    if tail[4:] != MAGIC:
        raise refusal(reader.name, size - len(MAGIC), f"it ends with {tail[4:]!r}, not with {MAGIC!r}: cut short?")
    footer = int.from_bytes(tail[:4], "little")
    if footer > size - TAIL_BYTES - len(MAGIC) or footer > MAX_FOOTER_BYTES:
        raise refusal(
            reader.name, size - TAIL_BYTES,
            f"a footer of {footer:,} bytes in a file of {size:,}; the limit is {MAX_FOOTER_BYTES:,}",
        )  # fmt: skip
    return size - TAIL_BYTES - footer


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    leaf: int  # Its number among the leaf columns, of which a nested column has several.
    width: int  # The size of every value; 0 if sizes differ.

    @classmethod
    def find(cls, source: _ParquetFile, name: str) -> _Column:
        schema = source.metadata.schema
        paths = [schema.column(leaf).path for leaf in range(source.metadata.num_columns)]
        found = [leaf for leaf, path in enumerate(paths) if path == name]
        if len(found) != 1 or schema.column(found[0]).max_repetition_level > 0:
            nested = [path for path in paths if path.startswith(f"{name}.")]
            reason = f"{len(found)} columns are called {name!r}" if found else f"no column {name!r}"
            if nested or found:
                reason += "; keys and values are top-level columns of byte strings, not lists or structs"
            top = sorted({path.partition(".")[0] for path in paths})
            shown = ", ".join(top[:SHOWN_COLUMNS]) + (", …" if len(top) > SHOWN_COLUMNS else "")
            raise source.refusal(
                source.end, f"{reason}; there are {shown}: set `key` and `value` to the columns to serve"
            )
        leaf = found[0]
        width = schema.column(leaf).length if schema.column(leaf).physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
        return cls(name, leaf, width)


def _check_type(source: _ParquetFile, name: str, kind: pa.DataType | None) -> None:
    types = source.arrow.types
    if kind is None:
        raise source.refusal(
            source.end, f"the column {name!r} is part of another one; keys and values are top-level columns"
        )
    inner = kind.value_type if types.is_dictionary(kind) else kind
    inner = inner.storage_type if isinstance(inner, source.arrow.BaseExtensionType) else inner
    accepted = (
        types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary,
        types.is_string, types.is_large_string, types.is_string_view,
    )  # fmt: skip
    if not any(accepts(inner) for accepts in accepted) or types.is_decimal(inner):
        raise source.refusal(
            source.end,
            f"the column {name!r} is {kind}, and only byte strings are served: write it as a string or as binary "
            f"(in Spark: col({name!r}).cast('string'))",
        )  # fmt: skip


# -- row groups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowGroup:
    number: int
    start: int
    row_bytes: float  # The size of a row where rows are largest, without the dictionary's part.
    dictionaries: tuple[str, ...]  # The columns with a dictionary.


def _check_row_group(source: _ParquetFile, number: int, columns: list[_Column]) -> _RowGroup:
    """Measure a row group by the headers of its pages."""
    group = source.metadata.row_group(number)
    starts = []
    dictionaries = []
    row_bytes = 0.0
    for column in columns:
        chunk = group.column(column.leaf)
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        stop = start + chunk.total_compressed_size
        where = f"column {column.name!r} of row group {number}"
        if not len(MAGIC) <= start <= stop <= source.end:
            raise source.refusal(source.end, f"{where} lies from {start:,} to {stop:,}, outside the data")
        if chunk.num_values != group.num_rows:
            raise source.refusal(start, f"{where} has {chunk.num_values:,} values for {group.num_rows:,} rows")
        starts.append(start)
        densest, has_dictionary = _weigh(source, column, pages(source.reader, start, stop, chunk.num_values))
        row_bytes += densest
        dictionaries += [column.name] if has_dictionary else []
    return _RowGroup(number, min(starts), row_bytes, tuple(dictionaries))


def _weigh(source: _ParquetFile, column: _Column, found: Iterator[ParquetPage]) -> tuple[float, bool]:
    """Return the bytes of a row in the densest page, and True if a dictionary adds to them."""
    limit = source.options.max_block_bytes * 2 // 5
    densest = column.width + 1.0
    dictionary_bytes = 0
    given_up = False  # Set once the writer has gone on without the dictionary.
    for page in found:
        if page.raw_bytes > limit:
            raise source.refusal(
                page.offset,
                f"the column {column.name!r} has a page of {page.raw_bytes:,} bytes; the limit is {limit:,}: write "
                "smaller pages (parquet.page.size in Spark, write_batch_size in pyarrow); "
                + enough_memory(-(-page.raw_bytes * 5 // 2)),
            )
        if page.kind == DICTIONARY_PAGE:
            dictionary_bytes = max(dictionary_bytes, page.raw_bytes)
            continue
        if page.encoding not in DICTIONARY_ENCODINGS:
            given_up = True
        elif given_up:
            # No writer returns to a dictionary, and a look at the first row would miss it.
            densest = max(densest, dictionary_bytes)
        densest = max(densest, page.raw_bytes / (1 if page.encoding == DELTA_BYTE_ARRAY else max(1, page.values)))
    return densest, dictionary_bytes > 0 and not column.width


def _rows_at_once(source: _ParquetFile, numbered: pq.ParquetFile, group: _RowGroup) -> int:
    """Return the number of rows to read at once, whatever they hold; `numbered` reads rows as value numbers."""
    row_bytes = group.row_bytes
    for column in group.dictionaries:
        for rows in _arrow_batches(source, numbered, group, [column], 1):
            array = rows.column(column)
            with source.refusing(group.start, f"the dictionary of the column {column!r} is damaged"):
                row_bytes += _values(source.arrow, array.dictionary).longest()
            break
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / row_bytes)))


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    source: _ParquetFile
    offset: int
    rows_before: int

    def refusal(self, row: int, reason: str) -> SourceError:
        file = self.source.reader.name
        number = self.rows_before + row + 1
        return SourceError(
            f"{file}: row {number:,}, in the row group at byte {self.offset:,}: {reason}",
            {"file": file, "offset": self.offset, "row": number, "reason": reason},
        )


def _arrow_batches(
    source: _ParquetFile, file: pq.ParquetFile, group: _RowGroup, names: list[str], at_once: int
) -> Iterator[pa.RecordBatch]:
    problem = f"row group {group.number} cannot be read"
    with source.refusing(group.start, problem):
        found = file.iter_batches(batch_size=at_once, row_groups=[group.number], columns=names, use_threads=False)
    while True:
        with source.refusing(group.start, problem):
            rows = next(found, None)
        if rows is None:
            return
        yield rows
        del rows  # Release the rows before the next ones are read.


def _rows(place: _Place, array: pa.Array, name: str) -> Column:
    """Return the rows of an Arrow array, in place."""
    arrow = place.source.arrow
    if array.null_count:
        row = array.is_null().index(True).as_py()
        raise place.refusal(row, f"the column {name!r} is null; every record has a key and a value")
    with place.source.refusing(place.offset, f"the column {name!r} is damaged"):
        if not arrow.types.is_dictionary(array.type):
            return _values(arrow, array)
        if array.dictionary.null_count:
            raise ValueError("a null in its dictionary")
        indices = array.indices
        buffer = indices.buffers()[1]
        return _values(arrow, array.dictionary).chosen(
            buffer, indices.type.bit_width // 8, first=indices.offset, count=len(indices)
        )


def _values(arrow: ModuleType, array: pa.Array) -> Column:
    """Return the values of an Arrow array, in place."""
    types = arrow.types
    if isinstance(array.type, arrow.BaseExtensionType):
        array = array.storage
    if types.is_binary_view(array.type) or types.is_string_view(array.type):
        array = array.cast(arrow.large_binary())
    count, first = len(array), array.offset
    if types.is_fixed_size_binary(array.type):
        return Column(array.buffers()[1], count, first=first, width=array.type.byte_width)
    large = types.is_large_binary(array.type) or types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    return Column(data, count, first=first, offsets=offsets, offset_bytes=8 if large else 4)


def _refused_row(place: _Place, keys: Column, values: Column, row: int) -> SourceError:
    key, value = keys.size_of(row), values.size_of(row)
    if key is None or value is None:
        reason = "damaged: it has no bytes"
    elif key > MAX_KEY_BYTES:
        reason = f"a key of {key:,} bytes; the limit is {MAX_KEY_BYTES:,}"
    else:
        reason = f"a value of {value:,} bytes; the limit is {place.source.options.max_value_bytes:,}"
    return place.refusal(row, reason)
