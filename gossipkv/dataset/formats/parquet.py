"""Parquet: a column of keys and a column of values, read through pyarrow.

The columns are top-level ones of byte strings: binary, string, fixed-size binary, dictionary-encoded or not.  What
stands in them is served as it is; a null is an error that names its row, a column of another type one that names the
type, since its bytes would be somebody's choice of how to write a number.

Records are taken from Arrow's buffers where they are.  pyarrow bounds neither what it reads nor what that becomes, so
the bounds are set before it reads a row group:

* The footer is at most `MAX_FOOTER_BYTES` long.
* Column chunks are read through a buffer, not whole; a page has at most two fifths of `max_block_bytes`
  (`parquet_pages`), so that the five of its size that are there at a time are two blocks, as in other formats.
* Rows are read in batches of `BATCH_BYTES`, by the mean size of a row in the page where it is greatest.  A value in a
  dictionary may stand for any number of rows, so each row counts as the longest of them, and so it is with deltas of
  strings, which can repeat a value just as well: there each row counts as a whole page.

So a batch holds at most `BATCH_BYTES` and two pages of each column.  With what pyarrow has of them on the way, and its
allocator keeps, a process was seen to grow by 45 MB and five times the largest page, however large the row group.

Rejected: one read of whole row groups, which jobs make as large as they like; pyarrow's `read_dictionary`, which
needs no such bound, but takes ten times as long where a writer began with a dictionary and gave it up.

What is not bounded is trust: pyarrow is C++ over hostile bytes, and may crash.  It does so in the process that builds,
which is none that serves.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.formats._formats import Column, fill_columns
from gossipkv.dataset.formats.parquet_pages import DELTA_BYTE_ARRAY, DICTIONARY_ENCODINGS, DICTIONARY_PAGE, Page, pages
from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, enough_memory, refusal
from gossipkv.errors import SourceError
from gossipkv.storage.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import pyarrow as pa
    from pyarrow import parquet as pq

    from gossipkv.dataset.formats.reading import Readable, Reading

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL_BYTES = 8  # The size of the footer, the magic.

# A thousand row groups of a thousand columns; it becomes about ten times that in memory.
MAX_FOOTER_BYTES = 16 << 20

# Rows for one batch: enough that a call is nothing, few enough that they are still in the cache when they are sorted.
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20
SHOWN_COLUMNS = 12  # Of a schema, in a message.

BUFFER_BYTES = 256 << 10  # What pyarrow asks for at once.
WINDOW_BYTES = 4 << 20  # What is read at once: a remote source reads on so far in any case.


def batches(reader: Readable, options: Reading) -> Iterator[Batch]:
    """The records of a file in order; their offsets are those of their row groups.

    Raises:
        SourceError: with `file` and `offset`, and `row` (from 1) if it is about one; or pyarrow is not installed.
    """
    source = _File.open(reader, options)
    names = list(dict.fromkeys((options.key, options.value)))
    columns = [_Column.find(source, name) for name in names]
    file, numbered = (source.parquet([]), source.parquet(names))
    with source.refusing(source.end, "the schema cannot be read"):
        types = {field.name: field.type for field in file.schema_arrow}
    for name in names:
        _check_type(source, name, types.get(name))
    batch = Batch()
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
    """The file as pyarrow wants it."""

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
        """What lies around here, and where that begins: as two columns are read by turns, there are two."""
        for start, window in self._windows:
            if start <= self._at < start + len(window):
                return start, window
        size = min(max(least, WINDOW_BYTES), self._reader.size_bytes - self._at)
        if len(self._windows) > 1:
            del self._windows[0]  # Before the next one is there.
        self._windows.append((self._at, self._reader.read_at(self._at, size)))
        return self._windows[-1]


@dataclass(frozen=True, slots=True)
class _File:
    """A file with its footer."""

    arrow: ModuleType
    reader: Readable
    data: _Bytes
    options: Reading
    end: int  # Where the footer begins.
    metadata: pq.FileMetaData

    @classmethod
    def open(cls, reader: Readable, options: Reading) -> _File:
        """Read the footer."""
        try:
            arrow = importlib.import_module("pyarrow")
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            reason = "Parquet is read through pyarrow, which is not installed: pip install 'gossipkv[parquet]'"
            raise SourceError(
                f"{reader.name}: {reason}", {"file": reader.name, "offset": 0, "reason": reason}
            ) from error
        # A build has its own way to use the cores: by files.
        arrow.set_cpu_count(1)
        end = _footer_start(reader)
        with _refusing(arrow, reader.name, end, "the footer cannot be read"):
            data = _Bytes(reader)
            return cls(arrow, reader, data, options, end, parquet.read_metadata(data))

    def parquet(self, by_number: list[str]) -> pq.ParquetFile:
        """A reader of rows; columns may be read as numbers of values."""
        with self.refusing(self.end, "the schema cannot be read"):
            return importlib.import_module("pyarrow.parquet").ParquetFile(
                self.data,
                metadata=self.metadata,
                read_dictionary=by_number,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
            )

    def refusal(self, offset: int, reason: str) -> SourceError:
        """The error about a place in the file."""
        return refusal(self.reader.name, offset, reason)

    def refusing(self, offset: int, what: str) -> contextlib.AbstractContextManager[None]:
        """Whatever pyarrow raises becomes the one error."""
        return _refusing(self.arrow, self.reader.name, offset, what)


@contextlib.contextmanager
def _refusing(arrow: ModuleType, name: str, offset: int, what: str) -> Iterator[None]:
    try:
        yield
    except (arrow.ArrowException, LookupError, OSError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise refusal(name, offset, f"{what}: {reason}") from error


def _footer_start(reader: Readable) -> int:
    """Where the footer begins, of a file that has one."""
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
    leaf: int  # Its number among the columns of bytes, which nested columns have several of.
    width: int  # Of every value; 0 if they differ.

    @classmethod
    def find(cls, source: _File, name: str) -> _Column:
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


def _check_type(source: _File, name: str, kind: pa.DataType | None) -> None:
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
    row_bytes: float  # What a row takes where rows take most, but for what a dictionary adds.
    dictionaries: tuple[str, ...]  # The columns that have one.


def _check_row_group(source: _File, number: int, columns: list[_Column]) -> _RowGroup:
    """What a row group will take, from the headers of its pages."""
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
        what = f"column {column.name!r} of row group {number}"
        if not len(MAGIC) <= start <= stop <= source.end:
            raise source.refusal(source.end, f"{what} lies from {start:,} to {stop:,}, outside the data")
        if chunk.num_values != group.num_rows:
            raise source.refusal(start, f"{what} has {chunk.num_values:,} values for {group.num_rows:,} rows")
        starts.append(start)
        densest, has_dictionary = _weigh(source, column, pages(source.reader, start, stop, chunk.num_values))
        row_bytes += densest
        dictionaries += [column.name] if has_dictionary else []
    return _RowGroup(number, min(starts), row_bytes, tuple(dictionaries))


def _weigh(source: _File, column: _Column, found: Iterator[Page]) -> tuple[float, bool]:
    """The bytes of a row in the page where they are most, and whether a dictionary adds to them."""
    limit = source.options.max_block_bytes * 2 // 5
    densest = column.width + 1.0
    dictionary_bytes = 0
    given_up = False  # The writer has gone on without the dictionary.
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
            # No writer goes back to it, and a look at the first row would not find it.
            densest = max(densest, dictionary_bytes)
        densest = max(densest, page.raw_bytes / (1 if page.encoding == DELTA_BYTE_ARRAY else max(1, page.values)))
    return densest, dictionary_bytes > 0 and not column.width


def _rows_at_once(source: _File, numbered: pq.ParquetFile, group: _RowGroup) -> int:
    """How many rows may be read at once, whatever they hold; `numbered` reads rows as numbers of values."""
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
    """Where an Arrow batch stands."""

    source: _File
    offset: int
    rows_before: int

    def refusal(self, row: int, reason: str) -> SourceError:
        """The error about a row of the batch."""
        file = self.source.reader.name
        number = self.rows_before + row + 1
        return SourceError(
            f"{file}: row {number:,}, in the row group at byte {self.offset:,}: {reason}",
            {"file": file, "offset": self.offset, "row": number, "reason": reason},
        )


def _arrow_batches(
    source: _File, file: pq.ParquetFile, group: _RowGroup, names: list[str], at_once: int
) -> Iterator[pa.RecordBatch]:
    what = f"row group {group.number} cannot be read"
    with source.refusing(group.start, what):
        found = file.iter_batches(batch_size=at_once, row_groups=[group.number], columns=names, use_threads=False)
    while True:
        with source.refusing(group.start, what):
            rows = next(found, None)
        if rows is None:
            return
        yield rows
        del rows  # Before the next ones are there.


def _rows(place: _Place, array: pa.Array, name: str) -> Column:
    """The rows of an Arrow array, where they are."""
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
    """The values of an Arrow array, where they are."""
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
