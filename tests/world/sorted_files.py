"""Builds one sorted file of records in any order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gossipkv.storage.builder import DEFAULT_MEMORY_BYTES, SortedFileBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.environment.seam import Files
    from gossipkv.storage.builder import BuildReport


def build(
    path: str | os.PathLike[str],
    records: Iterable[tuple[bytes, bytes]],
    *,
    files: Files | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    compression: str = "none",
    metadata: bytes = b"",
) -> BuildReport:
    """Build the file at `path`; of equal keys the last wins."""
    directory, name = os.path.split(os.fspath(path))
    with SortedFileBuilder(
        directory or ".", [name], files=files, memory_bytes=memory_bytes, compression=compression, metadata=metadata
    ) as builder:
        builder.add_all(records)
        return builder.finish()[0]
