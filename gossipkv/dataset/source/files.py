"""What a source is read with, and what is known of a file there: for a directory and a remote store alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gossipkv.environment.seam import READ

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.environment.seam import Entry, Path


class SourceFiles(Protocol):
    """The file operations that a source is listed and read with: those of `Files`, or a remote store's."""

    def list_directory(self, path: Path) -> list[Entry]:
        """See `Files`."""
        ...

    def stat(self, path: Path) -> Entry:
        """See `Files`."""
        ...

    def resolve(self, path: Path) -> str:
        """See `Files`."""
        ...

    def open(self, path: Path, flags: int = READ) -> int:
        """See `Files`."""
        ...

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        """See `Files`."""
        ...

    def close(self, descriptor: int) -> None:
        """See `Files`."""
        ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file as it was listed."""

    name: str
    path: str  # Without links; or a URL.
    size_bytes: int
    modified_ns: int
    tag: str = ""  # What else changes with its content, where the store has such a thing.
    checksums: SourceFile | None = None  # Hadoop's, beside it.

    @classmethod
    def of(cls, fields: Mapping[str, object]) -> SourceFile:
        """Return a file out of what `dataclasses.asdict` made of it."""
        match fields:
            case {
                "name": str(name), "path": str(path), "size_bytes": int(size_bytes), "modified_ns": int(modified_ns),
                "tag": str(tag), "checksums": dict() | None as checksums,
            }:  # fmt: skip
                return cls(name, path, size_bytes, modified_ns, tag, None if checksums is None else cls.of(checksums))
        raise ValueError(f"not a source file: {fields!r}")


# Later times, which a store may tell, count as this: all programs read such a number exactly (JSON).
LAST_MS = 1 << 53


def newest_ms(files: Iterable[SourceFile]) -> int:
    """When the last of these files was touched, since 1970; 0: no store tells."""
    return min(LAST_MS, max((file.modified_ns // 1_000_000 for file in files if file.modified_ns > 0), default=0))
