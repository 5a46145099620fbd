"""The operating system's files as they lie on the disk: what is read passes by the cache that everybody else reads.

A page in the cache and its place on the disk can each be damaged while the other is whole, and a page that is often
read stays in the cache for months.  `O_DIRECT` asks the disk.  A file system that refuses it is asked to drop the
range from its cache first, which it does only with pages that nobody has mapped: so what is read then may be the cache,
and `bypasses_cache` says so.  A file system in memory has no disk that could differ.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, Final

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ

if TYPE_CHECKING:
    from gossipkv.environment.seam import Path

# Of places, lengths and memory: at least a disk's blocks, whatever the disk.
ALIGNMENT_BYTES: Final = 4096
BUFFER_BYTES: Final = 1 << 20


class DirectFiles(RealFiles):
    """Files for one thread, which only reads."""

    def __init__(self, direct: int = getattr(os, "O_DIRECT", 0)) -> None:
        self.bypasses_cache = direct != 0  # So far, of all that was read.
        self._direct = direct
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # A map begins at a page: memory that the system takes.

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        if self._direct:
            try:
                return super().open(path, flags | self._direct, mode)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        self.bypasses_cache = False
        return super().open(path, flags, mode)

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        parts = []
        while size_bytes > 0:
            begin = offset % ALIGNMENT_BYTES
            start = offset - begin
            wanted = min(-(-(begin + size_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, BUFFER_BYTES)
            part = self._buffer[begin : min(self._read(descriptor, wanted, start), begin + size_bytes)]
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def _read(self, descriptor: int, size_bytes: int, offset: int) -> int:
        if not self.bypasses_cache:
            os.posix_fadvise(descriptor, offset, size_bytes, os.POSIX_FADV_DONTNEED)
        with memoryview(self._buffer) as view:
            return os.preadv(descriptor, [view[:size_bytes]], offset)
