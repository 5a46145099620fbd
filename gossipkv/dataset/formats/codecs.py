"""Hadoop's codecs, none of which may become more than it is allowed: `decompress(data, limit)` for each.

    DefaultCodec, DeflateCodec   zlib streams              isal
    GzipCodec                    gzip members              isal
    BZip2Codec                   bzip2 streams             standard library
    ZStandardCodec               zstd frames               cramjam
    SnappyCodec, Lz4Codec        Hadoop's block stream     cramjam

A stream may follow a stream (Hadoop's readers accept that of every codec), and nothing else may follow.  No data at all
are an empty result.  Hadoop's block stream stands around codecs that have no streams of their own; integers are
big-endian, and chunks follow until the raw size is reached:

    (u32 raw size, (u32 compressed size, chunk)...)...

The invariant is that memory is bounded by `limit`, whatever the data say: output is made in steps that end at most one
byte beyond the limit, or in a buffer that is no longer than it.  Input is handed to streams in pieces, since each hands
back what it has not used: a million tiny streams in one buffer would else be copied a million times.

ISA-L takes what zlib takes, makes the same of it, and needs half the time.  It also takes streams that zlib refuses for
a reserved flag or for codes that are not used; they end with the right checksum, like all that are taken.

Rejected: `cramjam` for all of them, which ignores what follows a zlib stream, and is not faster than zlib.
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

# Pieces of input begin small and grow: what a stream does not use of one is copied.
FIRST_PIECE_BYTES = 4 << 10
LAST_PIECE_BYTES = 256 << 10
# Output is asked for in steps, so that what a step holds beside the whole is small.
STEP_BYTES = 1 << 20
# The first guess at what zstd frames become, which Hadoop's do not say; a wrong one is tried again, GROWTH longer.
GUESS_BYTES = 16 << 10
GROWTH = 16

_WORD_BYTES = 4
_ZEROS = bytes(STEP_BYTES)


class DamagedError(Exception):
    """Compressed data that are damaged, or become more than they may; says which."""


def _too_long(limit: int) -> DamagedError:
    return DamagedError(f"they become more than {limit:,} bytes")


def _cut(size_bytes: int) -> DamagedError:
    return DamagedError(f"their stream has not ended after {size_bytes:,} bytes")


class Stream(Protocol):
    """A decompressor as bz2 has it, and zstd and lz4 after its example."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes without input."""

    @property
    def unused_data(self) -> bytes | None:
        """What follows the end."""

    def decompress(self, data: Bytes, /, max_length: int) -> bytes:
        """At most so many bytes more."""


zlib_stream: Final[Callable[[], Stream]] = functools.partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_ZLIB)
gzip_member: Final[Callable[[], Stream]] = functools.partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_GZIP)
INFLATE_ERROR: Final = cast("type[Exception]", igzip_lib.error)  # Its stub says that it is an exception.


def _streams(start: Callable[[], Stream], errors: tuple[type[Exception], ...], data: Bytes, limit: int) -> bytearray:
    """One or more streams, one behind the other."""
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


def _inflated(start: Callable[[], Stream], data: Bytes, limit: int) -> bytes | bytearray:
    """One or more zlib streams or gzip members."""
    if data:  # One stream most likely, in one step.
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
    """One or more zstd frames; the buffer for them grows up to the limit."""
    size = min(limit, max(GUESS_BYTES, GROWTH * len(data)))
    while data:
        found = bytearray(size)
        try:
            size = cramjam.zstd.decompress_into(data, found)
        except cramjam.DecompressionError as error:
            if size < limit:  # It does not say in so many words that the buffer is too short.
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
    """What a single chunk became, if that is all there is and nothing is wrong."""
    if len(view) > 2 * _WORD_BYTES:
        raw, size = _word(view, 0), _word(view, _WORD_BYTES)
        if 0 < raw <= limit and size == len(view) - 2 * _WORD_BYTES:
            found = bytearray(raw)
            with contextlib.suppress(cramjam.DecompressionError):
                if decompress_into(view[2 * _WORD_BYTES :], found) == raw:
                    return found
    return None


def _chunks(decompress_into: Callable[[Bytes, Bytes], int], data: Bytes, limit: int) -> bytearray:
    """Hadoop's block stream around chunks of a codec; `decompress_into` says how much a chunk became."""
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
            raise DamagedError(f"{len(view) - at:,} bytes follow their end")
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
                    became = decompress_into(chunk, room[filled:])
                except cramjam.DecompressionError as error:
                    raise DamagedError(str(error)) from error
                if became == 0:
                    raise DamagedError("a chunk of them is empty")
                filled += became
    return found


def lz4_chunk(chunk: Bytes, room: Bytes) -> int:
    """Decompresses a chunk into `room`; how much it became."""
    # Without the length of the output, cramjam may take the first bytes for one.
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
    """What decompresses the output of a codec, called by its Java class; None for one that is not known.

    What it returns is called with (data, limit) and raises `DamagedError`.
    """
    return _DECOMPRESS.get(codec)
