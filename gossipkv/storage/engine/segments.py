"""Segments of the log: files of a fixed size with a header and frames (`_log`), made, recycled and read.

    offset size field
    0      8    magic: "GKVLOG", carriage return, line feed
    8      4    format: 1
    12     4    1: what is written is synced before it counts
    16     8    store
    24     8    number
    32     8    salt
    40     8    life
    48     8    size of the file in bytes
    56     4    zero
    60     4    CRC-32C of bytes 0 to 59
    64     4032 zero

Frames follow from byte 4096 on; behind the last lies whatever the file held before, under another salt.  The size is
there so that a file that was cut short is noticed: a loss of power takes frames away and never bytes of the file, which
was allocated and synced before anything named it.

A segment is named by the manifest, by the `next` frame before it, or by the end of a life; `SegmentName` has the salt,
so a file that is used again under the same number is not taken for what it was.

Segments are read by `pread` and not mapped: a sector that cannot be read is an OSError then, and not the end of the
process.  What is read is a part of a segment, longer only when a frame is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.engine._engine import HEADER_BYTES, Frame, FrameReader, Frames
from gossipkv.storage.engine.manifest import LOG, SegmentName, segment_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

MAGIC: Final = b"GKVLOG\r\n"
FORMAT: Final = 1
IS_SYNCED: Final = 1
# What batches leave free at a segment's end: a mark, a `next` and a `begin` always fit.
RESERVED_BYTES: Final = 4096
# What is read at once: long enough that calls cost nothing, short beside a segment.
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
    """What a segment says of itself."""

    store: int
    number: int
    salt: int
    life: int  # In which it was made.
    size_bytes: int


class Segment(NamedTuple):
    """A segment as it was read."""

    name: SegmentName
    first: int  # The position of its first frame; 0 when it has none.
    last: int  # That of its last frame, of those that count; 0 when it has none, or was not read so far.
    end: int  # Where its last frame ends; 0 when it was not read so far.
    size_bytes: int


def encode_header(header: SegmentHeader) -> bytes:
    """The first block of a segment."""
    covered = _HEADER.pack(
        MAGIC, FORMAT, IS_SYNCED, header.store, header.number, header.salt, header.life, header.size_bytes, 0
    )
    return (covered + _CHECKSUM.pack(crc32c(covered))).ljust(HEADER_BYTES, b"\0")


def decode_header(data: bytes, path: str) -> SegmentHeader:
    """What the first block of the segment at `path` says.

    Raises:
        Corrupt: a byte differs from what was written, or is missing.
        UnsupportedFormat: a newer program wrote it.
    """
    if len(data) < HEADER_BYTES:
        raise Corrupt(path, len(data), "the file is cut short", expected=HEADER_BYTES, got=len(data))
    expected, got = _CHECKSUM.unpack_from(data, _CHECKSUM_AT)[0], crc32c(data[:_CHECKSUM_AT])
    if expected != got:
        raise Corrupt(path, _CHECKSUM_AT, "the header's checksum does not match it", expected=expected, got=got)
    magic, format_number, is_synced, store, number, salt, life, size_bytes, zero = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(path, 0, "this is no segment of a log", expected=MAGIC.hex(), got=magic.hex())
    if format_number > FORMAT:
        raise UnsupportedFormat(
            f"{path}: the log has format {format_number}, and this program reads up to {FORMAT}: "
            "it was written by a newer GossipKV; run that one",
            {"file": path, "format": format_number, "newest": FORMAT},
        )
    if is_synced != IS_SYNCED:
        raise Corrupt(path, _SYNCED_AT, "a segment that was not synced", expected=IS_SYNCED, got=is_synced)
    if zero or data[_CHECKSUM_AT + _CHECKSUM.size : HEADER_BYTES].strip(b"\0"):
        raise Corrupt(path, _CHECKSUM_AT + _CHECKSUM.size, "a segment's header ends with zeros")
    return SegmentHeader(store, number, salt, life, size_bytes)


def next_payload(name: SegmentName) -> bytes:
    """What the last frame of a segment says: the next one."""
    return _NEXT.pack(*name)


def next_name(payload: bytes) -> SegmentName:
    """The segment that a `next` frame names."""
    return SegmentName(*_NEXT.unpack(payload))


def make_segment(
    files: Files,
    directory: PurePath,
    header: SegmentHeader,
    recycled: int | None = None,
    fill: Callable[[int], object] | None = None,
) -> None:
    """Make a segment, durably: its room on the disk, its header and its name are synced when this returns.

    The file of the segment `recycled`, which nothing may name any more, is used again when it has the same size.
    `fill` is given the descriptor and may write frames, which are synced with the rest.

    Raises:
        OSError: the system refused (ENOSPC above all); what was begun is removed, as far as the system lets it.
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

    Returns where the last one ends.  Raises OSError.
    """
    stamped, offset = Frames(salt), HEADER_BYTES
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
    """Whether bytes of a segment are lost for good; else the system may give them another time."""
    return isinstance(error, Corrupt) or error.errno == errno.EIO


@final
class SegmentReader:
    """The frames of one segment, from the first, or from `offset`, on: a context manager around its descriptor.

    `position` is that of the frame before; 0 when any may come first.
    """

    def __init__(self, files: Files, path: PurePath, offset: int = HEADER_BYTES, position: int = 0) -> None:
        """Open the file at `path`, and check its header.

        Raises:
            Corrupt: the file is missing, its header does not hold, or its size is another.
            UnsupportedFormat: a newer program wrote it.
            OSError: the system refused.
        """
        self.name = str(path)
        self.offset = offset  # Where the frame begins that did not hold, once `frames` has ended.
        self.position = position  # Of the frame before that.
        self.is_torn = False  # Whether a part of the right frame is there.
        self.first = 0  # The position of the first frame that was read.
        self.synced = 0  # The highest position that any frame says is synced.
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
            raise Corrupt(
                self.name,
                min(size_bytes, header.size_bytes),
                "the segment has another size than its header says",
                expected=header.size_bytes,
                got=size_bytes,
            )
        return header

    def expect(self, name: SegmentName, store: int) -> None:
        """Hold the header against what names the segment.

        Raises:
            Corrupt: it is another one.
        """
        for what, at, expected, got in (
            ("store", _STORE_AT, store, self.header.store),
            ("number", _NUMBER_AT, name.number, self.header.number),
            ("salt", _SALT_AT, name.salt, self.header.salt),
        ):
            if expected != got:
                raise Corrupt(self.name, at, f"a segment with another {what}", expected=expected, got=got)

    def frames(self, on_batch: Callable[[SegmentName, int, bytes], None] | None = None) -> Iterator[Frame]:
        """Frames until one does not hold: then `offset`, `position` and `is_torn` say where.

        With `on_batch`, batches go to it, with the segment's name and their positions, and the others alone come.  At
        each that comes, `first` and `synced` are of all up to it.

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
        """Batches as `FrameReader.touching` tells them, in `most_bytes` from `offset` on, or in one longer frame.

        `end`: where the last frame ends, of those that count; 0 when that is not known.  Returns them, and whether the
        segment has ended; then `offset` and `position` say where to go on.

        Raises:
            Corrupt: the next frame does not hold.
            OSError: the system refused.
        """
        most_bytes = min(most_bytes, end - self.offset) if end else most_bytes
        part = self._part(self._read(most_bytes, 0))
        found = part.touching(spaces, after, until)
        while part.offset == self.offset and part.wanted:  # Of the first frame a part is here, or of its header.
            part = self._part(self._read(part.wanted, part.wanted))
            found = part.touching(spaces, after, until)
        if part.offset == self.offset:
            raise Corrupt(self.name, self.offset, "a frame of the log does not hold")
        self.offset, self.position = part.offset, part.position
        return found, part.has_ended

    def claims(self, least: int) -> int:
        """Return the highest position, of `least` or more, that any frame from `offset` on says is synced; or 0."""
        return self._part(self._read(self.header.size_bytes, 0)).claims(self.offset, least)

    def _part(self, data: bytes) -> FrameReader:
        return FrameReader(
            data, self.header.salt, self.offset, self.position, base=self.offset, limit=self.header.size_bytes
        )

    def _read(self, most_bytes: int, least_bytes: int) -> bytes:
        most_bytes = min(most_bytes, self.header.size_bytes - self.offset)
        data = self._files.pread(self._descriptor, most_bytes, self.offset)
        if len(data) < least_bytes:
            raise Corrupt(self.name, self.offset + len(data), "the file is cut short")
        return data


def read_segment(
    files: Files,
    directory: PurePath,
    name: SegmentName,
    store: int,
    *,
    start: int = HEADER_BYTES,
    end: int | None = None,
    position: int = 0,
) -> Iterator[Frame]:
    """The frames of a segment from `start` to `end`, or to the first that does not hold.

    Raises:
        Corrupt: the header does not hold, or a frame before `end`.
        OSError: the system refused.
    """
    with SegmentReader(files, segment_path(directory, name.number), start, position) as reader:
        reader.expect(name, store)
        for frame in reader.frames():
            if end is not None and frame.offset >= end:
                return
            yield frame
        if end is not None and reader.offset < end:
            raise Corrupt(reader.name, reader.offset, "a frame of the log does not hold")
