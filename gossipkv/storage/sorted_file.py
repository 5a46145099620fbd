"""The sorted file: an immutable map from bytes to bytes that is read where it lies, mapped into memory.

Records stand in key order, so that a scan reads forward; a hash index of one cache line per bucket leads to a record,
so that a lookup costs two cold lines whatever the size; one checksum for each 4 KiB page is compared when the page is
first touched, so that opening reads almost nothing and no unchecked byte is ever served.
`docs/development/sorted-file.md` specifies every byte.

Rejected: a tree of pages (LMDB's, a cold line a level); a perfect hash (two bytes a record smaller, but the same cold
lines and no in-order build); checksums of whole blocks on every read (the block would have to be read whole).

This is the one door to the reader; the serving loop enters through its `.pxd`.
"""

from __future__ import annotations

from gossipkv.storage import compression as _compression  # noqa: F401  Installs the lz4 functions.
from gossipkv.storage._storage import DEFAULT_CACHE_BYTES, HEADER_MAGIC, Scan, SortedFile, prefix_end, pretend

__all__ = ["DEFAULT_CACHE_BYTES", "HEADER_MAGIC", "SUFFIX", "Scan", "SortedFile", "prefix_end", "pretend"]

SUFFIX = ".gkv"
