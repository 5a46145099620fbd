"""Common parts of all formats: the bytes of one file, the options, and one kind of error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from gossipkv.errors import SourceError
from gossipkv.settings.csv_dialect import CsvDialect
from gossipkv.storage import label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.settings.databases import DatabaseSettings

    # From the first row and the number of rows, the positions of those that are deleted.
    Deleted = Callable[[int, int], Iterable[int]]

# The limits of the sorted file.
MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20

# Jobs write blocks of 1 MiB or less, some up to 64 MiB.
MAX_BLOCK_BYTES = 64 << 20

# Pages, stripes and batches of libraries; in a node this follows `build_memory`.
MAX_COLUMNS_BYTES = 1 << 30

# A building process takes this much beside columns: the program with pyarrow, and the least of a builder.
COLUMNS_PROGRAM_BYTES = 96 << 20

# Formats that a library reads into columns.
COLUMN_FORMATS = frozenset({"parquet", "arrow", "orc", "avro", "csv"})

# This value means all columns.
ALL_COLUMNS = "*"

# In a node the largest block is this part of `build_memory`.
BLOCKS_IN_MEMORY = 12

# Advice for a block of unknown size; `enough_memory` is for known sizes.
MORE_MEMORY = "on a node, a larger build_memory raises the limit"


@dataclass(frozen=True, slots=True)
class FileReading:
    """Options for reading the files of a database."""

    key: str | tuple[str, ...] = "key"  # The field names, for formats with named fields.
    value: str | tuple[str, ...] = "value"  # A single name or `ALL_COLUMNS`, or the fields of a row.
    max_value_bytes: int = MAX_VALUE_BYTES
    max_block_bytes: int = MAX_BLOCK_BYTES  # The decompressed size of one block, which is in memory as a whole.
    max_columns_bytes: int = MAX_COLUMNS_BYTES  # The memory that a library may take for columns.
    separator: str | None = None  # Between the fields of a key; None: they are a MessagePack array.
    encoding: str = "json"  # The encoding of rows, one of `gossipkv.settings.databases.ENCODINGS`.
    nulls: str = "omit"  # Nulls in rows are left out or null, see `gossipkv.settings.databases.NULLS`.
    # The columns that the directories of a file name, or that a table's snapshot has for it.
    partition: tuple[tuple[str, str | None], ...] = ()
    csv: CsvDialect = field(default_factory=CsvDialect)
    schema: str = ""  # The schema of a table's snapshot, as Arrow serializes it, in base 64; empty: the file's own.
    deleted: Deleted | None = None  # The rows of the file that a table's snapshot no longer has.
    warn: Callable[[str], None] | None = None  # Gets a doubt about the file, in words.

    @classmethod
    def by(cls, settings: DatabaseSettings) -> Self:
        """Return the options of a database."""
        return cls(
            settings.key,
            settings.value,
            separator=settings.separator,
            encoding=settings.encoding,
            nulls=settings.nulls,
            csv=settings.csv,
        )


class Readable(label.RandomAccess, Protocol):
    """The bytes of one listed file; `gossipkv.dataset.source.reader` lists the errors of reading."""

    def chunks(self, start: int = 0, /) -> Iterator[bytes]:
        """Yield all bytes from `start` on."""


def enough_for_columns(columns_bytes: int) -> str:
    """Name the `build_memory` that leaves so many bytes to a library that reads columns."""
    return f"on a node, build_memory = {-(-(columns_bytes + COLUMNS_PROGRAM_BYTES) >> 20)}MiB is enough"


def enough_memory(block_bytes: int) -> str:
    """Name the `build_memory` that allows a block of this size."""
    return f"on a node, build_memory = {-(-block_bytes * BLOCKS_IN_MEMORY >> 20)}MiB is enough"


def refusal(name: str, offset: int, reason: str) -> SourceError:
    """Return the error for a wrong file: the place and the reason."""
    return SourceError(f"{name}: byte {offset:,}: {reason}", {"file": name, "offset": offset, "reason": reason})
