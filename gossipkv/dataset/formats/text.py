"""The text of a file, decompressed by its first bytes or its name; this includes the formats of Hadoop's text input.

    .gz, .deflate, .bz2   gzip members (zeros after the last are padding), zlib streams, bzip2 streams
    .zst, .snappy         zstd frames; Hadoop's blocks
    .lz4                  Hadoop's blocks, or the frames of the `lz4` command
    block = u32 size of its text, then until that is reached: (u32 size, chunk); big-endian

Streams may follow each other.  Text comes in steps of `STEP_BYTES`, and a block, a zstd window or a chunk above
`max_block_bytes` is refused: the expanded size affects only time, not memory.  zstd uses the standard library of Python
3.14 (`backports.zstd` before), as cramjam decompresses frames only whole.
"""

from __future__ import annotations

import bz2
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import cramjam
from lz4.frame import LZ4FrameDecompressor

from gossipkv.dataset.formats.codecs import INFLATE_ERROR, gzip_member, lz4_chunk, zlib_stream
from gossipkv.dataset.formats.reading import MORE_MEMORY, enough_memory, refusal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.dataset.formats.codecs import Decompressor
    from gossipkv.dataset.formats.reading import FileReading, Readable

STEP_BYTES = 256 << 10

# Input is fed in growing pieces: the unused part of a piece is copied, and a file may have a million streams.
FIRST_PIECE_BYTES = 4 << 10
LAST_PIECE_BYTES = 64 << 10

LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
# First bytes that no text has, with the bytes that must follow.  First bytes precede names, which a job may omit.
_MAGIC: Final = (
    (re.compile(rb"\x1f\x8b\x08[\0-\x1f]", re.DOTALL), ".gz"),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), ".bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), ".zst"),  # A frame, or a skippable frame.
    (re.compile(re.escape(LZ4_FRAME_MAGIC)), ".lz4"),
    (re.compile(rb"\xfd7zXZ\0"), ".xz"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06)"), ".zip"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), ".7z"),
    (re.compile(rb"\x89LZO\0\r\n\x1a\n"), ".lzo"),
)
_LONGEST_MAGIC: Final = 10
SNAPPY_FRAME_MAGIC = b"\xff\x06\0\0sNaPpY"
WORD_BYTES = 4

# Known compressions that are not supported: a clear error is better than binary data taken for text.
OTHER_COMPRESSIONS = {".lzo", ".xz", ".lzma", ".zip", ".7z", ".br", ".z", ".tar", ".tgz"}


def chunks(reader: Readable, options: FileReading) -> Iterator[bytes]:
    """Yield the text, piece by piece.

    Raises:
        SourceError: it is damaged; the offset is that of the piece of the compressed file.
    """
    stored = reader.chunks()
    first = b""
    while len(first) < _LONGEST_MAGIC and (more := next(stored, b"")):
        first += more
    stored = itertools.chain([first], stored)
    suffix = compression(reader.name, first)
    if suffix is None:
        yield from stored
    elif suffix in OTHER_COMPRESSIONS:
        reason = f"the compression {suffix} cannot be read; compress the file as one of {', '.join(COMPRESSIONS)}"
        raise refusal(reader.name, 0, reason)
    elif suffix in _BLOCKS and not first.startswith(LZ4_FRAME_MAGIC):
        if first.startswith(SNAPPY_FRAME_MAGIC):
            reason = "the file has snappy's own framing; only Hadoop's can be read; compress it as .zst or .gz"
            raise refusal(reader.name, 0, reason)
        yield from _blocks(_Feed(reader, stored), options, *_BLOCKS[suffix])
    else:
        yield from _streams(reader.name, stored, _STREAMS[suffix](options))


def compression(name: str, head: bytes) -> str | None:
    """Return the extension, such as `.gz`, of the compression that the head, else the name, shows."""
    return next((suffix for magic, suffix in _MAGIC if magic.match(head)), None) or extension(name)


def extension(name: str) -> str | None:
    """Return the part of a name that shows the compression."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if suffix in _KNOWN else None


# -- streams -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    start: Callable[[], Decompressor]
    errors: tuple[type[Exception], ...]
    padded: bool = False


def _zstd(options: FileReading) -> _Kind:
    # A window takes as much memory as it states; sizes are powers of two.
    limits = {int(zstd.DecompressionParameter.window_log_max): max(10, options.max_block_bytes.bit_length() - 1)}
    return _Kind("zstd", lambda: zstd.ZstdDecompressor(options=limits), (zstd.ZstdError,))


_STREAMS: dict[str, Callable[[FileReading], _Kind]] = {
    ".gz": lambda _: _Kind("gzip", gzip_member, (INFLATE_ERROR,), padded=True),
    ".deflate": lambda _: _Kind("zlib", zlib_stream, (INFLATE_ERROR,)),
    ".bz2": lambda _: _Kind("bzip2", bz2.BZ2Decompressor, (OSError, ValueError)),
    ".zst": _zstd,
    ".lz4": lambda _: _Kind("lz4", LZ4FrameDecompressor, (RuntimeError,)),
}


def _streams(name: str, stored: Iterable[bytes], kind: _Kind) -> Iterator[bytes]:
    stream: Decompressor | None = None
    before = 0
    for chunk in stored:
        view = memoryview(chunk)
        at = 0
        while at < len(view):
            if stream is None:
                if kind.padded and view[at] == 0:
                    at = len(view) - len(bytes(view[at:]).lstrip(b"\0"))
                    continue
                stream = kind.start()
                piece = FIRST_PIECE_BYTES
            fed = view[at : at + piece]
            place = before + at
            at += len(fed)
            piece = min(2 * piece, LAST_PIECE_BYTES)
            yield from _outputs(stream, kind, fed, (name, place))
            if stream.eof:
                at -= len(stream.unused_data or b"")
                stream = None
        before += len(chunk)
    if stream is not None:
        raise refusal(name, before, f"the {kind.name} data are truncated: their end is missing")


def _outputs(stream: Decompressor, kind: _Kind, fed: bytes | memoryview, place: tuple[str, int]) -> Iterator[bytes]:
    """Yield a stream's output for a piece, step by step."""
    while not stream.eof:
        try:
            output = stream.decompress(fed, STEP_BYTES)
        except kind.errors as error:
            is_window = "too much memory" in str(error)  # Only zstd reports this.
            reason = f"{error}; {MORE_MEMORY}" if is_window else f"the {kind.name} data are damaged: {error}"
            raise refusal(*place, reason) from error
        fed = b""
        if output:
            yield output
        if stream.needs_input:
            return


# -- Hadoop's blocks ---------------------------------------------------------------------------------------------------


_BLOCKS: dict[str, tuple[str, Callable[[bytes, memoryview], int]]] = {
    ".snappy": ("snappy", cramjam.snappy.decompress_raw_into),
    ".lz4": ("lz4", lz4_chunk),
}

COMPRESSIONS = (".gz", ".deflate", ".bz2", ".zst", ".snappy", ".lz4")
_KNOWN = {*COMPRESSIONS, *OTHER_COMPRESSIONS}


class _Feed:
    """Returns a file's bytes in the requested sizes."""

    def __init__(self, reader: Readable, stored: Iterator[bytes]) -> None:
        self.name = reader.name
        self._left = reader.size_bytes
        self._chunks = stored
        self._buffer = bytearray()
        self._at = 0
        self.offset = 0

    def ended(self) -> bool:
        return self._left == 0

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes; refuse a size that the file cannot have without reading."""
        if size > self._left:
            reason = f"the file is truncated: {size:,} bytes are expected, {self._left:,} bytes are left"
            raise refusal(self.name, self.offset, reason)
        while len(self._buffer) - self._at < size:
            del self._buffer[: self._at]
            self._at = 0
            self._buffer += next(self._chunks)
        data = bytes(self._buffer[self._at : self._at + size])
        self._at += size
        self._left -= size
        self.offset += size
        return data

    def word(self) -> int:
        return int.from_bytes(self.take(WORD_BYTES), "big")


def _blocks(
    feed: _Feed, options: FileReading, name: str, decompress_into: Callable[[bytes, memoryview], int]
) -> Iterator[bytes]:
    room = bytearray()
    limit = options.max_block_bytes
    while not feed.ended():
        start = feed.offset
        left = feed.word()
        if left > limit:
            reason = f"the {name} block expands to {left:,} bytes; the limit is {limit:,} bytes"
            advice = f"the file may not be in Hadoop's format; if it is, {enough_memory(left)}"
            raise refusal(feed.name, start, f"{reason}; {advice}")
        if left > len(room):
            room = bytearray(left)
        while left:
            place = feed.offset
            size = feed.word()
            if size > limit:
                raise refusal(feed.name, place, f"the {name} chunk has {size:,} bytes; the limit is {limit:,} bytes")
            chunk = feed.take(size)
            try:
                written = decompress_into(chunk, memoryview(room)[:left])
            except (cramjam.DecompressionError, ValueError) as error:
                raise refusal(feed.name, place, f"the {name} data are damaged: {error}") from error
            if written == 0:
                raise refusal(feed.name, place, f"the {name} chunk is empty")
            left -= written
            yield bytes(memoryview(room)[:written])
