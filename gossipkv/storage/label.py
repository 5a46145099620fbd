"""What a sorted file says about itself, read from afar: its footer and its metadata, in two small reads.

Whoever has many files, or files on another machine, asks this before they are fetched and mapped.  It proves nothing
about the records; `docs/sorted-file.md` draws the bytes.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage._mapped_file import FOOTER_MAGIC, HEADER_MAGIC
from gossipkv.storage.builder import COMPRESSIONS
from gossipkv.storage.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT: Final = 1
HEADER_BYTES: Final = 64
FOOTER_BYTES: Final = 256
PAGE_BYTES: Final = 4_096

# More is somebody else's: what this program keeps with a file is a line of JSON.
MAX_METADATA_BYTES: Final = 1 << 20

_COMPRESSION_NAMES: Final = {number: name for name, number in COMPRESSIONS.items()}


class Readable(Protocol):
    """A file of known size that is read at offsets."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its size."""
        ...

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Exactly these bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Label:
    """One sorted file, as its footer describes it."""

    name: str
    size_bytes: int
    records: int
    duplicates: int
    compression: str
    metadata: bytes
    seal: int  # The CRC-32 of the footer: tells this file from every other.


def read_label(source: Readable) -> Label:
    """The label of a sorted file.

    Raises:
        UnsupportedFormat: it is another kind of file, or of a format that this program does not read.
        Corrupt: it is cut off, or its footer or metadata are damaged.
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
        raise Corrupt(name, at, "the footer's checksum does not hold", expected=expected, got=got)
    (version,) = struct.unpack_from("<I", footer, 4)
    if version != FORMAT:
        raise _other_format(name, at + 4, version)
    size_said, body_bytes, records = struct.unpack_from("<QQQ", footer, 8)
    offset, length = struct.unpack_from("<QQ", footer, 112)
    (duplicates,) = struct.unpack_from("<Q", footer, 144)
    if size_said != size_bytes:
        reason = "the file has another size than its footer says"
        raise Corrupt(name, at + 8, reason, expected=size_said, got=size_bytes)
    if body_bytes > at or offset + length > body_bytes or footer[152] not in _COMPRESSION_NAMES:
        raise Corrupt(name, at + 16, "the footer contradicts itself")
    metadata = _checked(source, body_bytes, offset, length) if length <= MAX_METADATA_BYTES else b""
    return Label(name, size_bytes, records, duplicates, _COMPRESSION_NAMES[footer[152]], metadata, zlib.crc32(footer))


def _checked(source: Readable, body_bytes: int, offset: int, length: int) -> bytes:
    """Bytes of the body, the pages that they lie in compared with their checksums."""
    if not length:
        return b""
    first, end = offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES)
    start, stop = first * PAGE_BYTES, min(end * PAGE_BYTES, body_bytes)
    body = source.read_at(start, stop - start)
    checksums = source.read_at(body_bytes + 4 * first, 4 * (end - first))
    for page, (expected,) in zip(range(first, end), _words(checksums), strict=True):
        at = page * PAGE_BYTES - start
        got = crc32c(body[at : at + PAGE_BYTES], page)
        if got != expected:
            reason = "a page's checksum does not hold"
            raise Corrupt(source.name, page * PAGE_BYTES, reason, expected=expected, got=got)
    return body[offset - start : offset - start + length]


def _words(data: bytes) -> Iterator[tuple[int]]:
    return struct.iter_unpack("<I", data)


def _no_footer(source: Readable) -> Corrupt | UnsupportedFormat:
    """Why there is no footer: the file is another kind, or newer, or was cut off."""
    name = source.name
    if source.size_bytes == 0:
        return Corrupt(name, 0, "the file is empty")
    head = source.read_at(0, min(12, source.size_bytes))
    magic = head[: len(HEADER_MAGIC)]
    if magic != HEADER_MAGIC:
        return UnsupportedFormat(
            f"{name}: not a sorted file: begins with {magic!r} instead of {HEADER_MAGIC!r}", {"file": name, "offset": 0}
        )
    if len(head) == 12:  # noqa: PLR2004  # The magic and the four bytes of the format.
        (version,) = struct.unpack_from("<I", head, 8)
        if version != FORMAT:
            return _other_format(name, 8, version)
    return Corrupt(name, source.size_bytes, "the footer is missing: the file was cut off or never finished")


def _other_format(name: str, offset: int, version: int) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{name}: sorted file of format {version}; this program reads format {FORMAT}. Build it again, or read it "
        "with a program that knows that format.",
        {"file": name, "offset": offset, "version": version},
    )
