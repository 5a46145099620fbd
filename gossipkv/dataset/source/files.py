"""File operations and file descriptions of a source, for a directory and a remote store alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from gossipkv.environment.seam import READ

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.environment.seam import FileEntry, Path


class SourceFiles(Protocol):
    """The file operations for listing and reading a source: those of `Files`, or a remote store's."""

    def list_directory(self, path: Path) -> list[FileEntry]: ...

    def stat(self, path: Path) -> FileEntry: ...

    def resolve(self, path: Path) -> str: ...

    def open(self, path: Path, flags: int = READ) -> int: ...

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes: ...

    def close(self, descriptor: int) -> None: ...


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The place of the positions of a data file's deleted rows; see `snapshots.deleted_rows`."""

    path: str = ""  # Empty: the vector is `inline`.
    offset: int = 0  # The start of the vector in the file, unless `row_file` is set.
    row_file: str = ""  # The name of the data file in a file with positions of several.
    inline: str = ""  # The vector as base 64.


@dataclass(frozen=True, slots=True)
class TableFile:
    """The statements of a table's snapshot about one data file, which is never written again."""

    values: tuple[tuple[str, str | None], ...] = ()  # The columns that are not in the file; None is null.
    deleted: tuple[DeletedRows, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file as it was listed."""

    name: str  # The name includes directories called `column=value`.
    path: str  # A path has its links resolved; it may be a URL.
    size_bytes: int
    modified_ns: int
    tag: str = ""  # The store's own sign of the content, where there is one.
    checksums: SourceFile | None = None  # Hadoop's checksum file stands beside it.
    table: TableFile | None = None  # The file belongs to a snapshot of a Delta or Iceberg table.


# Hive writes this for null.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_partition(name: str) -> bool:
    """Return True if a directory's name gives a column and its value, such as `country=DE`."""
    return name.find("=") > 0


def partition_columns(name: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that the directories in a file's name give, with their texts; None is null."""
    parts = [part.partition("=") for part in name.split("/")[:-1]]
    texts = [(unquote(column), unquote(value)) for column, _, value in parts]
    return tuple((column, None if text == NULL_PARTITION else text) for column, text in texts)


# Later times, which a store may report, are reduced to this: every JSON reader keeps such a number exact.
LAST_MS = 1 << 53


def newest_ms(files: Iterable[SourceFile]) -> int:
    """Return when the last of these files was modified, in milliseconds since 1970; 0: unknown."""
    return min(LAST_MS, max((file.modified_ns // 1_000_000 for file in files if file.modified_ns > 0), default=0))
