"""Segments of the log: files of a fixed size with a header and frames (`log.pyx`).

    offset size field
    0      8    magic: "GKVLOG", carriage return, line feed
    8      4    format: 1
    12     4    1: frames are synced before they count
    16     8    store
    24     8    number
    32     8    salt
    40     8    life
    48     8    size of the file in bytes
    56     4    zero
    60     4    CRC-32C of bytes 0 to 59
    64     4032 zero

Frames follow from byte 4096 on; behind the last frame lies old content of the file, under another salt. The size
reveals a file that was cut short: a power loss removes frames but no bytes, as the file was allocated and synced first.

A segment is named by the manifest, by the `next` frame before it, or by the end of a life. `SegmentName` includes the
salt, so a file that is reused under the same number is not mistaken for its earlier content.

Segments are read by `pread`, not mapped: an unreadable sector raises OSError and does not end the process. A read takes
a part of a segment, longer only for a longer frame.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, other_format
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.engine._engine import HEADER_BYTES, Frame, FrameBuffer, FrameParser
from gossipkv.storage.engine.manifest import LOG, SegmentName, segment_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

MAGIC: Final = b"GKVLOG\r\n"
FORMAT: Final = 1
IS_SYNCED: Final = 1
# Batches leave this much free at a segment's end, so that a mark, a `next` and a `begin` frame always fit.
RESERVED_BYTES: Final = 4096
# Bytes per read: long enough to make calls cheap, short compared with a segment.
PART_BYTES: Final = 1 << 20
WRITE: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)

_HEADER: Final = struct.Struct("<8sIIQQQQQI")
_CHECKSUM: Final = struct.Struct("<I")
_NEXT: Final = struct.Struct("<QQ")
_SYNCED_AT: Final = 12
_STORE_AT: Final = 16
_NUMBER_AT: Final = 24
_SALT_AT: Final = 32
_CHECKSUM_AT: Final = 60


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    store: int
    number: int
    salt: int
    life: int  # The life that made the segment.
    size_bytes: int


class Segment(NamedTuple):
    """A segment as it was read."""

    name: SegmentName
    first: int  # The position of its first frame; 0 when it has none.
    last: int  # Position of its last frame that counts; 0 if there is none or it was not read so far.
    end: int  # End of its last frame; 0 if not read so far.
    size_bytes: int


def encode_header(header: SegmentHeader) -> bytes:
    """Return the first block of a segment."""
    covered = _HEADER.pack(
        MAGIC, FORMAT, IS_SYNCED, header.store, header.number, header.salt, header.life, header.size_bytes, 0
    )
    return (covered + _CHECKSUM.pack(crc32c(covered))).ljust(HEADER_BYTES, b"\0")


def decode_header(data: bytes, path: str) -> SegmentHeader:
    """Return the header in the first block of the segment at `path`.

    Raises:
        Corrupt: a byte differs from what was written, or is missing.
        UnsupportedFormat: it has another format.
    """
    if len(data) < HEADER_BYTES:
        raise Corrupt(path, len(data), "the file is cut short", expected=HEADER_BYTES, got=len(data))
    expected, got = _CHECKSUM.unpack_from(data, _CHECKSUM_AT)[0], crc32c(data[:_CHECKSUM_AT])
    if expected != got:
        raise Corrupt(path, _CHECKSUM_AT, "the checksum of the header does not match", expected=expected, got=got)
    magic, format_number, is_synced, store, number, salt, life, size_bytes, zero = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(path, 0, "this is not a segment of a log", expected=MAGIC.hex(), got=magic.hex())
    if format_number != FORMAT:
        raise other_format(f"{path}: the log", format_number, FORMAT, file=path)
    if is_synced != IS_SYNCED:
        raise Corrupt(path, _SYNCED_AT, "the segment was not synced", expected=IS_SYNCED, got=is_synced)
    if zero or data[_CHECKSUM_AT + _CHECKSUM.size : HEADER_BYTES].strip(b"\0"):
        raise Corrupt(path, _CHECKSUM_AT + _CHECKSUM.size, "the header of a segment must end with zeros")
    return SegmentHeader(store, number, salt, life, size_bytes)


def next_name(payload: bytes) -> SegmentName:
    """Return the segment that a `next` frame names."""
    return SegmentName(*_NEXT.unpack(payload))


def make_segment(
    files: Files,
    directory: PurePath,
    header: SegmentHeader,
    recycled: int | None = None,
    fill: Callable[[int], object] | None = None,
) -> None:
    """Make a segment durably: its space, header and name are synced when this returns.

    The file of the segment `recycled`, which nothing may name any more, is reused if it has the same size. `fill` gets
    the descriptor and may write frames, which are synced with the rest.

    Raises:
        OSError: the system refused (above all ENOSPC); the partial file is removed if possible.
    """
    path = segment_path(directory, header.number)
    if recycled is not None:
        files.rename(segment_path(directory, recycled), path)
        if files.stat(path).size_bytes != header.size_bytes:
            files.unlink(path)
            recycled = None
    try:
        descriptor = files.open(path, WRITE_NEW if recycled is None else WRITE)
        try:
            if recycled is None:
                files.allocate(descriptor, 0, header.size_bytes)
            files.pwrite(descriptor, encode_header(header), 0)
            if fill is not None:
                fill(descriptor)
            files.sync(descriptor)
        finally:
            files.close(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(path)
        raise
    files.sync_directory(directory / LOG)


def write_frames(files: Files, descriptor: int, salt: int, frames: Iterable[tuple[int, int, int, bytes]]) -> int:
    """Write frames behind a segment's header, under its salt: kind, position, synced and payload of each.

    Returns the end of the last frame. Raises OSError.
    """
    stamped, offset = FrameBuffer(salt), HEADER_BYTES
    for frame in frames:
        stamped.append(*frame)
        if stamped.size_bytes >= PART_BYTES:
            files.pwrite(descriptor, stamped.view(), offset)
            offset += stamped.size_bytes
            stamped.clear(salt)
    if stamped.size_bytes:
        files.pwrite(descriptor, stamped.view(), offset)
    return offset + stamped.size_bytes


def is_damage(error: Corrupt | OSError) -> bool:
    """Return True if bytes of a segment are lost for good; other errors may be temporary."""
    return isinstance(error, Corrupt) or error.errno == errno.EIO


@final
class SegmentReader:
    """The frames of one segment, from the first or from `offset` on: a context manager around its descriptor.

    `position` is that of the frame before; 0 allows any first frame.
    """

    def __init__(self, files: Files, path: PurePath, offset: int = HEADER_BYTES, position: int = 0) -> None:
        """Open the file at `path`, and check its header.

        Raises:
            Corrupt: the file is missing, its header is damaged, or its size is wrong.
            UnsupportedFormat: it has another format.
            OSError: the system refused.
        """
        self.name = str(path)
        self.offset = offset  # Offset of the first invalid frame, once `frames` has ended.
        self.position = position  # Position of the frame before that.
        self.is_torn = False  # True if a part of the expected frame exists.
        self.first = 0  # Position of the first frame that was read.
        self.synced = 0  # The highest position that any frame calls synced.
        self._files = files
        try:
            self._descriptor = files.open(path)
        except FileNotFoundError as error:
            raise Corrupt(self.name, 0, "the segment is missing") from error
        try:
            self.header = self._checked()
        except BaseException:
            files.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close(self._descriptor)

    def _checked(self) -> SegmentHeader:
        header = decode_header(self._files.pread(self._descriptor, HEADER_BYTES, 0), self.name)
        size_bytes = self._files.size(self._descriptor)
        if size_bytes != header.size_bytes:
            at, reason = min(size_bytes, header.size_bytes), "the segment does not have the size that its header states"
            raise Corrupt(self.name, at, reason, expected=header.size_bytes, got=size_bytes)
        return header

    def expect(self, name: SegmentName, store: int) -> None:
        """Compare the header with the segment's name.

        Raises:
            Corrupt: the file is another segment.
        """
        for field, at, expected, got in (
            ("store", _STORE_AT, store, self.header.store),
            ("number", _NUMBER_AT, name.number, self.header.number),
            ("salt", _SALT_AT, name.salt, self.header.salt),
        ):
            if expected != got:
                raise Corrupt(self.name, at, f"the segment has another {field}", expected=expected, got=got)

    def frames(self, on_batch: Callable[[SegmentName, int, bytes], None] | None = None) -> Iterator[Frame]:
        """Yield frames up to the first invalid one; then `offset`, `position` and `is_torn` describe its place.

        With `on_batch`, batches go to it, with the segment's name and their positions, and only other frames are
        yielded. At each yield, `first` and `synced` cover all frames up to it.

        Raises:
            Corrupt: the file was cut short meanwhile.
            OSError: the system refused.
        """
        name = SegmentName(self.header.number, self.header.salt)
        reader = self._part(b"")
        while True:
            if on_batch is not None:
                reader.each_batch(on_batch, name)
            frame = reader.next()
            self.first, self.synced = self.first or reader.first, max(self.synced, reader.synced)
            if frame is not None:
                yield frame
            elif reader.wanted:
                self.offset, self.position = reader.offset, reader.position
                reader = self._part(self._read(max(PART_BYTES, reader.wanted), reader.wanted))
            else:
                break
        self.offset, self.position, self.is_torn = reader.offset, reader.position, reader.is_torn

    def batches(
        self, spaces: frozenset[int], after: int, until: int, *, most_bytes: int, end: int
    ) -> tuple[list[tuple[int, list[tuple[int, int, bytes, bytes]]]], bool]:
        """Return batches as `FrameParser.touching` does, from `most_bytes` at `offset`, or from one longer frame.

        `end`: the end of the last frame that counts; 0 if not known. Also returns whether the segment has ended.
        Afterwards `offset` and `position` say where to go on.

        Raises:
            Corrupt: the next frame is invalid.
            OSError: the system refused.
        """
        most_bytes = min(most_bytes, end - self.offset) if end else most_bytes
        part = self._part(self._read(most_bytes, 0))
        found = part.touching(spaces, after, until)
        while part.offset == self.offset and part.wanted:  # Only a part of the first frame, or of its header, was read.
            part = self._part(self._read(part.wanted, part.wanted))
            found = part.touching(spaces, after, until)
        if part.offset == self.offset:
            raise Corrupt(self.name, self.offset, "a frame of the log is damaged")
        self.offset, self.position = part.offset, part.position
        return found, part.has_ended

    def claims(self, least: int) -> int:
        """Return the highest position, at least `least`, that any frame from `offset` on calls synced; or 0."""
        return self._part(self._read(self.header.size_bytes, 0)).claims(self.offset, least)

    def _part(self, data: bytes) -> FrameParser:
        return FrameParser(
            data, self.header.salt, self.offset, self.position, base=self.offset, limit=self.header.size_bytes
        )

    def _read(self, most_bytes: int, least_bytes: int) -> bytes:
        most_bytes = min(most_bytes, self.header.size_bytes - self.offset)
        data = self._files.pread(self._descriptor, most_bytes, self.offset)
        if len(data) < least_bytes:
            raise Corrupt(self.name, self.offset + len(data), "the file is cut short")
        return data


def read_segment(
    files: Files, directory: PurePath, name: SegmentName, store: int, *, end: int | None = None
) -> Iterator[Frame]:
    """Yield the frames of a segment up to `end`, or to the first invalid one.

    Raises:
        Corrupt: the header is invalid, or a frame before `end`.
        OSError: the system refused.
    """
    with SegmentReader(files, segment_path(directory, name.number)) as reader:
        reader.expect(name, store)
        for frame in reader.frames():
            if end is not None and frame.offset >= end:
                return
            yield frame
        if end is not None and reader.offset < end:
            raise Corrupt(reader.name, reader.offset, "a frame of the log is damaged")
