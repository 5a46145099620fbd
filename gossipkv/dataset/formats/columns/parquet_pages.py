"""The page sizes of a Parquet column chunk, read from page headers before anything is decoded.

pyarrow decompresses whole pages and shows none of their sizes; the footer has only those of chunks.  A chunk of 100 MiB
adds 50 MiB to a process if its pages have 1 MiB, as most writers make them, and 236 MiB if it is one page.  By the
footer alone, either the first would be refused or the second would exceed the memory of a build.

Each header is a struct of Thrift's compact protocol: a field header (type in the low 4 bits, id's distance in the high
4; 0: the zigzag id follows), then

    1, 2; 3; 7      true, false: no bytes; one byte; 8 bytes
    4 to 6; 8       zigzag varint; varint size, then that many bytes
    9, 10           list, set: element type low, size high (15: a varint follows), elements
    12              struct: fields, then a zero byte
    PageHeader      1 type, 2 uncompressed size, 3 compressed size, 5 data page, 7 dictionary page, 8 data page v2
    data page       1 values, 2 encoding (version 2: 1 values, 4 encoding)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.reading import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import Readable

# Headers have some 20 to 100 bytes, and up to some kilobytes with statistics of long values.
FIRST_READ_BYTES = 256
MAX_HEADER_BYTES = 1 << 20
MAX_NESTING = 8

DICTIONARY_PAGE = 2
INDEX_PAGE = 1
DICTIONARY_ENCODINGS = {2, 8}
DELTA_BYTE_ARRAY = 7

Struct = dict[int, "int | Struct"]


@dataclass(frozen=True, slots=True)
class ParquetPage:
    """A page as its header describes it."""

    offset: int
    kind: int
    raw_bytes: int  # The larger of its two sizes.
    values: int
    encoding: int


class _Short(Exception):  # This is no error: the caller reads on.
    """The header continues after the bytes that were read."""


class _Compact:
    """Thrift's compact protocol, as far as a page header uses it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise _Short
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004  # The top bit announces another byte.
                return value
        raise ValueError("a varint has more than 10 bytes")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise _Short
        self.at += size

    def struct(self, depth: int = 0) -> Struct:
        fields: Struct = {}
        last = 0
        while header := self.byte():
            last = last + (header >> 4) if header >> 4 else self.zigzag()
            fields[last] = self.value(header & 15, depth)
        return fields

    def value(self, kind: int, depth: int) -> int | Struct:  # noqa: PLR0911  # This follows the rows of the module's table.
        if depth > MAX_NESTING:
            raise ValueError(f"it is nested deeper than {MAX_NESTING} levels")
        match kind:
            case 1 | 2:
                return 2 - kind
            case 3:
                return self.byte()
            case 4 | 5 | 6:
                return self.zigzag()
            case 7:
                self.skip(8)
                return 0
            case 8:
                self.skip(self.varint())
                return 0
            case 9 | 10:
                header = self.byte()
                for _ in range(self.varint() if header >> 4 == 15 else header >> 4):  # noqa: PLR2004  # See the table.
                    # In a list, true and false have a byte each.
                    self.value(max(3, header & 15), depth + 1)
                return 0
            case 12:
                return self.struct(depth + 1)
        raise ValueError(f"a field has the unknown type {kind}")


def pages(reader: Readable, start: int, end: int, values: int) -> Iterator[ParquetPage]:
    """Yield the pages of a column chunk from `start` to `end` with `values` values.

    Raises:
        SourceError: a header is damaged, or leads out of the chunk.
    """
    at = start
    while values > 0:
        if at >= end:
            raise refusal(reader.name, start, f"the column chunk ends {values:,} values early")
        page, after = _page(reader, at, end)
        if after > end:
            raise refusal(reader.name, at, f"the page ends {after - end:,} bytes after its column chunk")
        yield page
        if page.kind not in {DICTIONARY_PAGE, INDEX_PAGE}:
            values -= page.values
        at = after


def _page(reader: Readable, at: int, end: int) -> tuple[ParquetPage, int]:
    """Return the page at `at`, and its end."""
    size = FIRST_READ_BYTES
    while True:
        size = min(size, end - at)
        header = _Compact(reader.read_at(at, size))
        try:
            fields = header.struct()
        except _Short:
            if size < min(MAX_HEADER_BYTES, end - at):
                size *= 16
                continue
            raise refusal(reader.name, at, "the page header has no end") from None
        except ValueError as error:
            raise refusal(reader.name, at, f"the page header cannot be read: {error}") from error
        break
    kind, raw, stored = (fields.get(number) for number in (1, 2, 3))
    details = next((fields[number] for number in (5, 7, 8) if number in fields), {})
    if not (isinstance(kind, int) and isinstance(raw, int) and isinstance(stored, int) and isinstance(details, dict)):
        raise refusal(reader.name, at, "the page header has no size")
    count, encoding = details.get(1, 0), details.get(4 if 8 in fields else 2, 0)  # noqa: PLR2004  # See the table.
    if raw < 0 or stored < 0 or not isinstance(count, int) or not isinstance(encoding, int) or count < 0:
        claims = f"{raw:,} bytes, {stored:,} compressed bytes and {count} values"
        raise refusal(reader.name, at, f"the page header has impossible sizes: {claims}")
    return ParquetPage(at, kind, max(raw, stored), count, encoding), at + header.at + stored
