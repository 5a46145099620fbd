"""Hadoop's checksum files: `.part-0.crc` beside `part-0`, as its local and checksummed file systems write them.

    offset  size  field
    0       4     b"crc" and a zero byte
    4       4     bytes under each checksum, big-endian
    8       4     for each piece of that many bytes, the last one shorter: CRC-32 (zlib's), big-endian

They are read as needed: 64 KiB at a time, which cover 8 MiB of data at Hadoop's usual 512 bytes.  Without the file
nothing is checked; a file that does not fit is an error, since its meaning is lost.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.source.files import SourceFile

MAGIC: Final = b"crc\0"
HEADER_BYTES: Final = 8
CHECKSUM_BYTES: Final = 4

# A piece is read whole, so this bounds memory; Hadoop's own is 512.
MAX_BYTES_EACH: Final = 1 << 20

# This many checksums are held at a time.
WINDOW: Final = 16_384


def checksum_name(name: str) -> str:
    """Return the name of the checksum file of a file."""
    return f".{name}.crc"


@final
class HadoopChecksums:
    """The checksums in `file` over the bytes of `data`; `read(offset, size_bytes)` reads from `file`.

    Raises:
        SourceError: it is no checksum file, or covers another number of bytes.
    """

    def __init__(self, data: SourceFile, file: SourceFile, read: Callable[[int, int], bytes]) -> None:
        self._data = data
        self._file = file
        self._read = read
        header = read(0, HEADER_BYTES)
        if len(header) < HEADER_BYTES or header[:4] != MAGIC:
            raise self._unusable(f"it begins with {header[:4]!r} instead of {MAGIC!r}")
        self.bytes_each = int.from_bytes(header[4:], "big")
        if not 0 < self.bytes_each <= MAX_BYTES_EACH:
            raise self._unusable(f"it claims {self.bytes_each:,} bytes for each checksum")
        expected = HEADER_BYTES + CHECKSUM_BYTES * -(-data.size_bytes // self.bytes_each)
        if file.size_bytes != expected:
            raise self._unusable(
                f"it has {file.size_bytes:,} bytes, but the checksums of {data.size_bytes:,} bytes, one for each "
                f"{self.bytes_each:,} bytes, need {expected:,} bytes"
            )
        self._window_begins = 0
        self._window = b""

    def whole_pieces(self, offset: int, size_bytes: int) -> tuple[int, int]:
        """Return the range of the pieces that a range of the data touches."""
        begin = offset - offset % self.bytes_each
        end = -(-(offset + size_bytes) // self.bytes_each) * self.bytes_each
        return begin, min(end, self._data.size_bytes)

    def first_wrong(self, offset: int, data: bytes) -> SourceError | None:
        """Return an error if whole pieces read at `offset` are damaged, else None.

        Raises:
            SourceError: the checksum file ends early.
        """
        with memoryview(data) as view:
            size = self.bytes_each
            found = [zlib.crc32(view[at : at + size]) for at in range(0, len(data), size)]
        first = offset // size
        for turn, expected in enumerate(self._expected(first, len(found))):
            if expected != found[turn]:
                at = (first + turn) * size
                reason = (
                    f"the data are damaged: the CRC-32 is {found[turn]:08x}, but {expected:08x} in {self._file.path}"
                )
                return SourceError(
                    f"{self._data.path}: byte {at:,}: {reason}",
                    {"file": self._data.path, "offset": at, "reason": reason},
                )
        return None

    def _expected(self, first: int, count: int) -> tuple[int, ...]:
        """Return `count` checksums from the `first`, reading a window at a time."""
        parts: list[int] = []
        while len(parts) < count:
            at = (first + len(parts)) * CHECKSUM_BYTES - self._window_begins
            if not 0 <= at < len(self._window):
                self._window_begins += at
                self._window = self._read(HEADER_BYTES + self._window_begins, WINDOW * CHECKSUM_BYTES)
                at = 0
            data = self._window[at : at + (count - len(parts)) * CHECKSUM_BYTES]
            if not data or len(data) % CHECKSUM_BYTES:
                raise self._unusable("it ends too early")
            parts += struct.unpack(f">{len(data) // CHECKSUM_BYTES}I", data)
        return tuple(parts)

    def _unusable(self, why: str) -> SourceError:
        reason = f"the checksum file {self._file.path} is damaged or stale: {why}; delete it or write the data again"
        return SourceError(f"{self._data.path}: {reason}", {"file": self._data.path, "offset": 0, "reason": reason})
