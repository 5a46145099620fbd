"""Hadoop's codecs with bounded output: `decompress(data, limit)` for each.

    DefaultCodec, DeflateCodec (zlib streams), GzipCodec (gzip members)       isal
    BZip2Codec (bzip2 streams)                                                standard library
    ZStandardCodec (zstd frames), SnappyCodec, Lz4Codec (Hadoop's blocks)     cramjam
    block stream = (u32 raw size, (u32 compressed size, chunk) until that size)...; big-endian

Streams may follow each other; empty input gives empty output.  Invariant: `limit` bounds memory, whatever the data
claim.  Output comes in steps, at most one byte beyond it.  Input is fed in pieces, as a stream returns unused input,
which a million tiny streams would otherwise copy repeatedly.  ISA-L gives zlib's results in half the time, and also
accepts reserved flags and unused codes.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
from typing import TYPE_CHECKING, Final, Protocol, cast

import cramjam
from isal import igzip_lib

if TYPE_CHECKING:
    from collections.abc import Callable

    Bytes = bytes | bytearray | memoryview
    Decompress = Callable[[Bytes, int], bytes | bytearray]

# Pieces of input begin small and grow, as the unused part of a piece is copied.
FIRST_PIECE_BYTES = 4 << 10
LAST_PIECE_BYTES = 256 << 10
# Output is requested in steps, so that a step holds little beside the whole.
STEP_BYTES = 1 << 20
# The first guess at the size of zstd frames, which Hadoop's do not state; a wrong guess is retried, GROWTH times
# longer.
GUESS_BYTES = 16 << 10
GROWTH = 16

_WORD_BYTES = 4
_ZEROS = bytes(STEP_BYTES)


class DamagedError(Exception):
    """Compressed data are damaged, or become too long; the message says which."""


def _too_long(limit: int) -> DamagedError:
    return DamagedError(f"the data expand to more than {limit:,} bytes")


def _cut(size_bytes: int) -> DamagedError:
    return DamagedError(f"the compressed stream has not ended after {size_bytes:,} bytes")


class Decompressor(Protocol):
    """A decompressor with the interface of bz2's, as also zstd's and lz4's."""

    @property
    def eof(self) -> bool:
        """True if the stream has ended."""

    @property
    def needs_input(self) -> bool:
        """True if no more output comes without input."""

    @property
    def unused_data(self) -> bytes | None:
        """Return the input after the end of the stream."""

    def decompress(self, data: Bytes, /, max_length: int) -> bytes:
        """Return at most `max_length` more bytes."""


zlib_stream: Final[Callable[[], Decompressor]] = functools.partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_ZLIB)
gzip_member: Final[Callable[[], Decompressor]] = functools.partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_GZIP)
# The package's stub declares an exception instance.
INFLATE_ERROR: Final = cast("type[Exception]", igzip_lib.error)


def _streams(
    start: Callable[[], Decompressor], errors: tuple[type[Exception], ...], data: Bytes, limit: int
) -> bytearray:
    found = bytearray()
    view = memoryview(data)
    at = 0
    while at < len(view):
        stream = start()
        piece = FIRST_PIECE_BYTES
        while not stream.eof:
            fed: bytes | memoryview = b""
            if stream.needs_input:
                fed = view[at : at + piece]
                at += len(fed)
                piece = min(GROWTH * piece, LAST_PIECE_BYTES)
                if not fed:
                    raise _cut(len(view))
            try:
                found += stream.decompress(fed, min(STEP_BYTES, limit + 1 - len(found)))
            except errors as error:
                raise DamagedError(str(error)) from error
            if len(found) > limit:
                raise _too_long(limit)
        at -= len(stream.unused_data or b"")
    return found


def _inflated(start: Callable[[], Decompressor], data: Bytes, limit: int) -> bytes | bytearray:
    """Decompress one or more zlib streams or gzip members."""
    if data:  # Most data are one stream, which one step can decompress.
        stream = start()
        with contextlib.suppress(INFLATE_ERROR):
            whole = stream.decompress(data, limit + 1)
            if stream.eof and len(whole) <= limit and not stream.unused_data:
                return whole
            del whole
    return _streams(start, (INFLATE_ERROR,), data, limit)


def _bzip2(data: Bytes, limit: int) -> bytearray:
    return _streams(bz2.BZ2Decompressor, (OSError, ValueError), data, limit)


def _zstd(data: Bytes, limit: int) -> bytearray:
    """Decompress one or more zstd frames into a buffer that grows up to the limit."""
    size = min(limit, max(GUESS_BYTES, GROWTH * len(data)))
    while data:
        found = bytearray(size)
        try:
            size = cramjam.zstd.decompress_into(data, found)
        except cramjam.DecompressionError as error:
            if size < limit:  # The error does not say explicitly that the buffer is too short.
                size = min(limit, GROWTH * size)
                continue
            if "whole buffer" in str(error):
                raise _too_long(limit) from error
            raise DamagedError(str(error)) from error
        del found[size:]
        return found
    return bytearray()


def _word(data: memoryview, at: int) -> int:
    if len(data) - at < _WORD_BYTES:
        raise _cut(len(data))
    return int.from_bytes(data[at : at + _WORD_BYTES], "big")


def _one_chunk(decompress_into: Callable[[Bytes, Bytes], int], view: memoryview, limit: int) -> bytearray | None:
    """Decompress a single chunk; None if there is more or anything is wrong."""
    if len(view) > 2 * _WORD_BYTES:
        raw, size = _word(view, 0), _word(view, _WORD_BYTES)
        if 0 < raw <= limit and size == len(view) - 2 * _WORD_BYTES:
            found = bytearray(raw)
            with contextlib.suppress(cramjam.DecompressionError):
                if decompress_into(view[2 * _WORD_BYTES :], found) == raw:
                    return found
    return None


def _chunks(decompress_into: Callable[[Bytes, Bytes], int], data: Bytes, limit: int) -> bytearray:
    """Decompress Hadoop's block stream; `decompress_into` returns the size of a decompressed chunk."""
    view = memoryview(data)
    whole = _one_chunk(decompress_into, view, limit)
    if whole is not None:
        return whole
    found = bytearray()
    at = filled = 0
    while at < len(view):
        raw = _word(view, at)
        at += _WORD_BYTES
        if raw > limit - len(found):
            raise _too_long(limit)
        if raw == 0 and at < len(view):
            raise DamagedError(f"{len(view) - at:,} bytes follow the end of the compressed data")
        for start in range(0, raw, STEP_BYTES):
            found += _ZEROS[: raw - start]
        with memoryview(found) as room:
            while filled < len(room):
                size = _word(view, at)
                at += _WORD_BYTES
                chunk = view[at : at + size]
                at += size
                if len(chunk) < size:
                    raise _cut(len(view))
                try:
                    written = decompress_into(chunk, room[filled:])
                except cramjam.DecompressionError as error:
                    raise DamagedError(str(error)) from error
                if written == 0:
                    raise DamagedError("a compressed chunk is empty")
                filled += written
    return found


def lz4_chunk(chunk: Bytes, room: Bytes) -> int:
    """Decompress a chunk into `room`; return its size."""
    # Without the output's length, cramjam may take the first bytes for it.
    return cramjam.lz4.decompress_block_into(chunk, room, output_len=len(room))


_HADOOP = "org.apache.hadoop.io.compress."
_DECOMPRESS: dict[str, Decompress] = {
    _HADOOP + "DefaultCodec": functools.partial(_inflated, zlib_stream),
    _HADOOP + "DeflateCodec": functools.partial(_inflated, zlib_stream),
    _HADOOP + "GzipCodec": functools.partial(_inflated, gzip_member),
    _HADOOP + "BZip2Codec": _bzip2,
    _HADOOP + "ZStandardCodec": _zstd,
    _HADOOP + "SnappyCodec": functools.partial(_chunks, cramjam.snappy.decompress_raw_into),
    _HADOOP + "Lz4Codec": functools.partial(_chunks, lz4_chunk),
}

CODECS = tuple(_DECOMPRESS)


def decompressor(codec: str) -> Decompress | None:
    """Return the decompressor of a codec by its Java class; None if the codec is unknown.

    The decompressor is called with (data, limit) and raises `DamagedError`.
    """
    return _DECOMPRESS.get(codec)
