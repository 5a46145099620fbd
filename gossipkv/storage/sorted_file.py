"""The sorted file: an immutable map from bytes to bytes, read in place through a memory map.

Records are in key order, so a scan reads forward. A hash index with one cache line per bucket leads to a record, so a
lookup costs two cold lines whatever the size. Each 4 KiB page has a checksum that is compared when the page is first
touched, so opening reads almost nothing and no unchecked byte is ever served. `docs/development/sorted-file.md`
specifies every byte.

Python imports the reader from here only; the serving loop uses its `.pxd`.
"""

from __future__ import annotations

from gossipkv.storage import compression as _compression  # noqa: F401  Installs the lz4 functions.
from gossipkv.storage._storage import (
    DEFAULT_CACHE_BYTES,
    FORMAT,
    HEADER_MAGIC,
    FileScan,
    SortedFile,
    prefix_end,
    pretend,
)

__all__ = ["DEFAULT_CACHE_BYTES", "FORMAT", "HEADER_MAGIC", "SUFFIX", "FileScan", "SortedFile", "prefix_end", "pretend"]

SUFFIX = ".gkv"
