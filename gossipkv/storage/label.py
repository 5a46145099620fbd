"""Labels of sorted files: footer and metadata, read with a few small reads, without mapping the file.

They suit a caller with many files, or with files on another machine that are not fetched yet. A label proves nothing
about the records. `CheckedBody` returns bytes of the body after comparing each page with its checksum.
`docs/development/sorted-file.md` draws the bytes.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.storage._storage import FOOTER_MAGIC, HEADER_MAGIC, check_format
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.compression import COMPRESSIONS

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

HEADER_BYTES: Final = 64
FOOTER_BYTES: Final = 256
PAGE_BYTES: Final = 4_096

# GossipKV stores one line of JSON as metadata, so longer metadata was written by another program.
MAX_METADATA_BYTES: Final = 1 << 20

_CHUNK_PAGES: Final = PAGE_BYTES // 4  # These page checksums share one checksum, a chunk of the format.

_COMPRESSION_NAMES: Final = {number: name for name, number in COMPRESSIONS.items()}


class RandomAccess(Protocol):
    """A file of known size that is read at offsets."""

    @property
    def name(self) -> str:
        """The name of the file in error messages."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        ...

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Return exactly `size_bytes` bytes at `offset`."""
        ...


def look_at_seal(files: Files, path: PurePath) -> tuple[int, int]:
    """Return the size of a sorted file, and its seal: the CRC-32 of its last 256 bytes, the footer.

    The footer holds the checksum of all page checksums, so the seal distinguishes this file from any other at the cost
    of one page. A replaced file is thus noticed at opening.
    """
    descriptor = files.open(path)
    try:
        size_bytes = files.size(descriptor)
        tail_bytes = min(size_bytes, FOOTER_BYTES)
        return size_bytes, zlib.crc32(files.pread(descriptor, tail_bytes, size_bytes - tail_bytes))
    finally:
        files.close(descriptor)


class OpenFile:
    """A `RandomAccess` over a descriptor."""

    def __init__(self, files: Files, descriptor: int, name: str) -> None:
        self.name = name
        self.size_bytes = files.size(descriptor)
        self._files = files
        self._descriptor = descriptor

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        data = self._files.pread(self._descriptor, size_bytes, offset)
        if len(data) != size_bytes:
            raise StorageError(f"{self.name}: the file became shorter during the read", {"file": self.name})
        return data


@dataclass(frozen=True, slots=True)
class Label:
    """One sorted file, as its footer describes it."""

    name: str
    size_bytes: int
    records: int
    duplicates: int
    compression: str
    metadata: bytes
    seal: int  # CRC-32 of the footer, which distinguishes this file from any other.
    body_bytes: int
    records_end: int
    blocks_at: int  # Offset of the block table, which has no blocks without lz4.
    blocks: int


def read_label(source: RandomAccess) -> Label:
    """Return the label of a sorted file.

    Raises:
        UnsupportedFormat: the file is of another kind, or of a format that this program does not read.
        Corrupt: the file is cut off, or its footer or metadata are damaged.
    """
    name, size_bytes = source.name, source.size_bytes
    if size_bytes < HEADER_BYTES + FOOTER_BYTES:
        raise _no_footer(source)
    footer = source.read_at(size_bytes - FOOTER_BYTES, FOOTER_BYTES)
    at = size_bytes - FOOTER_BYTES
    if not footer.endswith(FOOTER_MAGIC):
        raise _no_footer(source)
    (expected,), got = struct.unpack_from("<I", footer), crc32c(footer[4:])
    if expected != got:
        raise Corrupt(name, at, "the footer's checksum does not match", expected=expected, got=got)
    (version,) = struct.unpack_from("<I", footer, 4)
    check_format(name, version, at + 4)
    stated_bytes, body_bytes, records, position_end, records_end = struct.unpack_from("<5Q", footer, 8)
    blocks_at, blocks, offset, length = struct.unpack_from("<4Q", footer, 96)
    (duplicates,) = struct.unpack_from("<Q", footer, 144)
    compression = _COMPRESSION_NAMES.get(footer[152])
    if stated_bytes != size_bytes:
        reason = "the file does not have the size that its footer states"
        raise Corrupt(name, at + 8, reason, expected=stated_bytes, got=size_bytes)
    if (
        compression is None
        or _size_of(body_bytes) != size_bytes
        or not HEADER_BYTES <= records_end <= body_bytes
        or offset + length > body_bytes
        or (compression == "none" and position_end + HEADER_BYTES != records_end)
        or (compression != "none" and blocks_at + 8 * (blocks + 1) > body_bytes)
    ):
        raise Corrupt(name, at + 16, "the footer contradicts itself")
    body = CheckedBody(source, body_bytes)
    metadata = body.read(offset, length) if length <= MAX_METADATA_BYTES else b""
    return Label(
        name,
        size_bytes,
        records,
        duplicates,
        compression,
        metadata,
        zlib.crc32(footer),
        body_bytes,
        records_end,
        blocks_at,
        blocks,
    )


class CheckedBody:
    """The body of a sorted file, from its start: no byte is returned before its page's checksum was verified.

    Checksums are fetched for 4 MiB of the body at once, so sequential reads pay one more small read per 4 MiB.
    """

    def __init__(self, source: RandomAccess, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._source = source
        self._pages = -(-size_bytes // PAGE_BYTES)
        self._window = -1
        self._checksums: tuple[int, ...] = ()
        self._windows: tuple[int, ...] = ()  # The checksums of the windows, which the format calls chunks.

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes that the caller knows to lie in the body.

        Raises:
            Corrupt: the checksum of a page does not match.
        """
        if not size_bytes:
            return b""
        start = offset // PAGE_BYTES * PAGE_BYTES
        stop = min(-(-(offset + size_bytes) // PAGE_BYTES) * PAGE_BYTES, self.size_bytes)
        data = self._source.read_at(start, stop - start)
        view = memoryview(data)
        for at in range(0, stop - start, PAGE_BYTES):
            page = (start + at) // PAGE_BYTES
            expected, got = self._checksum(page), crc32c(view[at : at + PAGE_BYTES], page)
            if got != expected:
                reason = "a page's checksum does not match"
                raise Corrupt(self._source.name, start + at, reason, expected=expected, got=got)
        return data if len(data) == size_bytes else data[offset - start : offset - start + size_bytes]

    def _checksum(self, page: int) -> int:
        window, place = divmod(page, _CHUNK_PAGES)
        if window != self._window:
            first = window * _CHUNK_PAGES
            count = min(_CHUNK_PAGES, self._pages - first)
            at = self.size_bytes + 4 * first
            data = self._source.read_at(at, 4 * count)
            if not self._windows:
                self._windows = self._words(self.size_bytes + 4 * self._pages, -(-self._pages // _CHUNK_PAGES))
            expected, got = self._windows[window], crc32c(data, window)
            if got != expected:
                reason = "the checksum of the page checksums does not match"
                raise Corrupt(self._source.name, at, reason, expected=expected, got=got)
            self._checksums = struct.unpack(f"<{count}I", data)
            self._window = window
        return self._checksums[place]

    def _words(self, offset: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self._source.read_at(offset, 4 * count))


def _size_of(body_bytes: int) -> int:
    """Return the size of the file around a body."""
    pages = -(-body_bytes // PAGE_BYTES)
    return body_bytes + 4 * pages + 4 * -(-4 * pages // PAGE_BYTES) + FOOTER_BYTES


def _no_footer(source: RandomAccess) -> Corrupt | UnsupportedFormat:
    """Return the error for a missing footer: the file is of another kind, or newer, or was cut off."""
    name = source.name
    if source.size_bytes == 0:
        return Corrupt(name, 0, "the file is empty")
    head = source.read_at(0, min(12, source.size_bytes))
    magic = head[: len(HEADER_MAGIC)]
    if magic != HEADER_MAGIC:
        return UnsupportedFormat(
            f"{name}: not a sorted file: it begins with {magic!r} instead of {HEADER_MAGIC!r}",
            {"file": name, "offset": 0},
        )
    if len(head) == 12:  # noqa: PLR2004  # The magic and the four bytes of the format.
        (version,) = struct.unpack_from("<I", head, 8)
        check_format(name, version, 8)
    return Corrupt(name, source.size_bytes, "the footer is missing: the file was cut off or never finished")
