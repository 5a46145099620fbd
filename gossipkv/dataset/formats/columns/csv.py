"""CSV, through pyarrow: quotes, a header, and whatever else the dialect says (`gossipkv.settings.csv_dialect`).

Fields are strings unless the dialect gives their column a type: no guess makes 7 of 007.  Text of another encoding that
the dialect names becomes UTF-8; without a name, bytes that are not UTF-8 pass with a warning.  Compressed text is read
as with tab-separated lines.
"""

from __future__ import annotations

import codecs
import itertools
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import csv

from gossipkv.dataset.formats import text
from gossipkv.dataset.formats._formats import end_of_rows
from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows, RowPlace, refusing
from gossipkv.dataset.formats.reading import enough_for_columns, refusal
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable
    from gossipkv.settings.csv_dialect import CsvDialect

NEWLINE: Final = b"\n"
ADVICE: Final = 'set csv = { encoding = "cp1252" }, or the encoding that it has, in the settings of the database'

# Whole rows are read in pieces of this size; a row may be longer, up to a part of the memory for columns.
PIECE_BYTES: Final = 1 << 20
PIECES: Final = 8
MAX_ROWS: Final = 16_384


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of pieces of the text.

    Raises:
        SourceError: with `file`, and `row` (from 1, without the header) for an error in a row.
    """
    pa.set_cpu_count(1)
    dialect = options.csv
    parsing = csv.ParseOptions(
        delimiter=dialect.delimiter or _delimiter(reader.name),
        quote_char=dialect.quote or False,
        escape_char=dialect.escape or False,
        double_quote=not dialect.escape,
        newlines_in_values=bool(dialect.quote),
    )
    batch = RecordBatch()
    names: list[str] = []
    before = 0
    for offset, piece in _pieces(reader, options, parsing):
        first = not names
        if first and not piece.strip():
            continue
        if first:
            names = list(dialect.columns) or _header(reader, piece, parsing)
            rows = ArrowRows(reader.name, pa.schema([pa.field(name, _type(name, dialect)) for name in names]), options)
            converting = csv.ConvertOptions(
                check_utf8=False,
                column_types={name: _type(name, dialect) for name in names},
                null_values=list(dialect.null),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                include_columns=rows.columns,
            )
        with refusing(reader.name, offset, f"the rows from {before + 1:,} on cannot be read"):
            table = csv.read_csv(
                pa.BufferReader(piece),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=len(piece) + 1,
                    column_names=names,
                    skip_rows_after_names=1 if first and dialect.header else 0,
                ),
                parsing,
                converting,
            )
        for arrow_rows in table.to_batches(max_chunksize=MAX_ROWS):
            yield from rows.records(arrow_rows, RowPlace(reader.name, offset, "piece", before), batch)
            before += arrow_rows.num_rows
        del table  # Release the rows before the next ones are read.


def _pieces(reader: Readable, options: FileReading, parsing: csv.ParseOptions) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of whole rows, with their offsets in the text."""
    characters = _characters(parsing)
    limit = options.max_columns_bytes // PIECES
    offset = gathered = 0
    wanted = PIECE_BYTES
    parts: list[bytes] = []
    for chunk in _encoded(reader, options):
        parts.append(chunk)
        gathered += len(chunk)
        if gathered < wanted:
            continue
        data = b"".join(parts)
        end = end_of_rows(data, *characters)
        if not end and gathered > limit:
            reason = f"a row has more than {limit:,} bytes, or a quote is not closed; "
            raise refusal(reader.name, offset, reason + enough_for_columns(2 * PIECES * limit))
        if end:
            yield offset, data[:end]
        offset += end
        parts = [data[end:]]
        gathered -= end
        wanted = PIECE_BYTES if end else 2 * gathered
    if gathered:
        data = b"".join(parts)
        yield offset, data if data.endswith((b"\n", b"\r")) else data + b"\n"


def _encoded(reader: Readable, options: FileReading) -> Iterator[bytes]:
    """Yield the text as UTF-8, or as it is."""
    encoding = options.csv.encoding
    decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
    is_checked, line = True, 1
    for chunk in itertools.chain(text.chunks(reader, options), [b""]):
        decoded = ""
        if is_checked:
            try:
                decoded = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                where = f"line {line + bytes(error.object[: error.start]).count(NEWLINE)}"
                if encoding is not None:
                    raise refusal(reader.name, 0, f"{where} is not text in {encoding}: {error.reason}") from error
                is_checked = False
                if options.warn is not None:
                    options.warn(f"{where} is not UTF-8, so its fields are served as other bytes; {ADVICE}")
            line += chunk.count(NEWLINE)
        yield chunk if encoding is None else decoded.encode()


def _characters(parsing: csv.ParseOptions) -> tuple[int, int, int]:
    quote, escape = parsing.quote_char, parsing.escape_char
    return ord(parsing.delimiter), ord(quote) if quote else -1, ord(escape) if escape else -1


def _delimiter(name: str) -> str:
    path = PurePosixPath(name.lower())
    if text.extension(name) is not None:
        path = path.with_suffix("")
    return "\t" if path.suffix in {".tsv", ".tab"} else ","


def _type(name: str, dialect: CsvDialect) -> pa.DataType:
    return pa.type_for_alias(dict(dialect.types).get(name, "string"))


def _header(reader: Readable, piece: bytes, parsing: csv.ParseOptions) -> list[str]:
    """Return the names in the first line."""
    with refusing(reader.name, 0, "the header cannot be read"):
        line = piece[: end_of_rows(piece, *_characters(parsing), first=True) or len(piece)]
        reading = csv.ReadOptions(use_threads=False, block_size=len(line) + 2)
        names: list[str] = csv.read_csv(pa.BufferReader(line + b"\n"), reading, parsing).column_names
    if len(set(names)) < len(names):
        raise refusal(reader.name, 0, f"the header names a column twice: {', '.join(names)}")
    return names
