"""Hadoop SequenceFiles in plain Python, codecs in C: a reader and a writer of every kind that GossipKV reads.

The format is that of `org.apache.hadoop.io.SequenceFile` 3.3; `gossipkv/dataset/formats/sequence_file.py` draws it. The
reader is strict: bytes that no writer could have meant raise `Malformed`.
"""

from __future__ import annotations

import bz2
import functools
import random
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cramjam
import lz4.block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TEXT = "org.apache.hadoop.io.Text"
BYTES = "org.apache.hadoop.io.BytesWritable"
NULL = "org.apache.hadoop.io.NullWritable"
INT_WRITABLE = "org.apache.hadoop.io.IntWritable"
LONG_WRITABLE = "org.apache.hadoop.io.LongWritable"
VINT_WRITABLE = "org.apache.hadoop.io.VIntWritable"
VLONG_WRITABLE = "org.apache.hadoop.io.VLongWritable"
NONE, RECORD, BLOCK = "none", "record", "block"

MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20
SYNC_BYTES = 16
SYNC_ESCAPE = -1
MAX_METADATA = 1024
MAX_HEADER_TEXT = 64 << 10
MAX_VINT_BYTES = 5
MAX_CHUNKS_BYTES = 64 << 20

INT = struct.Struct(">i")
UNSIGNED = struct.Struct(">I")
TWO_INTS = struct.Struct(">ii")


class Malformed(Exception):
    """Not a SequenceFile that can be read."""


# -- reading ---------------------------------------------------------------------------------------------------------


def read_vint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return a number in the form of Hadoop's WritableUtils, and its end."""
    first = data[at]
    if first < 128:
        return first, at + 1
    if first >= 144:  # -112 to -1, in one byte.
        return first - 256, at + 1
    size = 144 - first if first >= 136 else 136 - first
    end = at + 1 + size
    if (bits == 32 and size >= MAX_VINT_BYTES) or end > len(data):
        raise Malformed("a vint that is cut or too long")
    number = int.from_bytes(data[at + 1 : end], "big")
    if first < 136:
        number = ~number
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise Malformed(f"a vint of more than {bits} bits")
    return number, end


def read_text(data: bytes) -> bytes:
    size, start = read_vint(data, 0)
    if size != len(data) - start:
        raise Malformed("a Text that is not as long as its field")
    return data[start:]


def read_bytes(data: bytes) -> bytes:
    if INT.unpack_from(data)[0] != len(data) - 4:
        raise Malformed("a BytesWritable that is not as long as its field")
    return data[4:]


def read_null(data: bytes) -> bytes:
    if data:
        raise Malformed("a NullWritable of some bytes")
    return b""


def read_number(data: bytes, *, size: int) -> bytes:
    """Return an IntWritable or a LongWritable as decimal text."""
    if len(data) != size:
        raise Malformed(f"a number of {len(data)} bytes")
    return str(int.from_bytes(data, "big", signed=True)).encode()


def read_variable(data: bytes, *, bits: int) -> bytes:
    """Return a VIntWritable or a VLongWritable as decimal text."""
    number, end = read_vint(data, 0, bits)
    if end != len(data):
        raise Malformed("bytes behind a number")
    return str(number).encode()


READ_FIELD: dict[str, Callable[[bytes], bytes]] = {
    TEXT: read_text,
    BYTES: read_bytes,
    NULL: read_null,
    INT_WRITABLE: functools.partial(read_number, size=4),
    LONG_WRITABLE: functools.partial(read_number, size=8),
    VINT_WRITABLE: functools.partial(read_variable, bits=32),
    VLONG_WRITABLE: functools.partial(read_variable, bits=64),
}


def streams(make: Callable[[], zlib._Decompress | bz2.BZ2Decompressor], data: bytes) -> bytes:
    """Decompress one or more consecutive streams."""
    parts = []
    while data:
        stream = make()
        parts.append(stream.decompress(data))
        if not stream.eof:
            raise Malformed("a compressed stream is cut")
        data = stream.unused_data
    return b"".join(parts)


def chunked(decompress_chunk: Callable[[bytes, int], bytes], data: bytes) -> bytes:
    """Decompress Hadoop's frame around codecs without streams: a raw size, then chunks up to that size, repeated."""
    parts = []
    at = 0
    while at < len(data):
        missing = UNSIGNED.unpack_from(data, at)[0]
        at += 4
        if missing > MAX_CHUNKS_BYTES or (not missing and at < len(data)):
            raise Malformed("a raw size that cannot be")
        while missing:
            size = UNSIGNED.unpack_from(data, at)[0]
            at += 4
            if not 0 < size <= len(data) - at:
                raise Malformed("a chunk is cut")
            part = decompress_chunk(data[at : at + size], missing)
            if not 0 < len(part) <= missing:
                raise Malformed("a chunk that is longer than its raw size, or empty")
            parts.append(part)
            missing -= len(part)
            at += size
    return b"".join(parts)


def snappy_chunk(data: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise Malformed("a snappy chunk that is longer than its raw size")
    return bytes(cramjam.snappy.decompress_raw(data))


def lz4_chunk(data: bytes, limit: int) -> bytes:
    return lz4.block.decompress(data, uncompressed_size=limit)


def zstd_frames(data: bytes) -> bytes:
    return bytes(cramjam.zstd.decompress(data)) if data else b""


CODECS = "org.apache.hadoop.io.compress."
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    CODECS + "DefaultCodec": functools.partial(streams, zlib.decompressobj),
    CODECS + "DeflateCodec": functools.partial(streams, zlib.decompressobj),
    CODECS + "GzipCodec": functools.partial(streams, functools.partial(zlib.decompressobj, 31)),
    CODECS + "BZip2Codec": functools.partial(streams, bz2.BZ2Decompressor),
    CODECS + "SnappyCodec": functools.partial(chunked, snappy_chunk),
    CODECS + "Lz4Codec": functools.partial(chunked, lz4_chunk),
    CODECS + "ZStandardCodec": zstd_frames,
}
DAMAGE = (
    zlib.error, lz4.block.LZ4BlockError, cramjam.DecompressionError, OSError, ValueError, IndexError, struct.error
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The header of a file; `end` is the offset of the first record or block."""

    version: int
    key_class: str
    value_class: str
    compression: str
    codec: str | None
    metadata: dict[bytes, bytes]
    sync: bytes
    end: int


class Cursor:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise Malformed(f"byte {self.at}: {size} bytes are wanted and {len(self.data) - self.at} left")
        part = self.data[self.at : end]
        self.at = end
        return part

    def integer(self) -> int:
        return INT.unpack(self.take(4))[0]

    def vint(self) -> int:
        number, self.at = read_vint(self.data, self.at)
        return number

    def boolean(self) -> bool:
        byte = self.take(1)[0]
        if byte > 1:
            raise Malformed("a boolean that is neither 0 nor 1")
        return byte == 1

    def text(self) -> bytes:
        size = self.vint()
        if size > MAX_HEADER_TEXT:
            raise Malformed("a text of the header that is too long")
        return self.take(size)


def read_header(data: bytes) -> Header:
    cursor = Cursor(data)
    if cursor.take(3) != b"SEQ":
        raise Malformed("no SequenceFile")
    version = cursor.take(1)[0]
    if version not in {5, 6}:
        raise Malformed(f"version {version}")
    key_class, value_class = cursor.text().decode(), cursor.text().decode()
    if key_class not in READ_FIELD or value_class not in READ_FIELD:
        raise Malformed(f"classes {key_class}, {value_class}")
    compressed, by_block = cursor.boolean(), cursor.boolean()
    if by_block and not compressed:
        raise Malformed("blocks, but no compression")
    codec = cursor.text().decode() if compressed else None
    if codec is not None and codec not in DECOMPRESS:
        raise Malformed(f"codec {codec}")
    metadata = {}
    if version > 5:
        count = cursor.integer()
        if not 0 <= count <= MAX_METADATA:
            raise Malformed(f"{count} entries of metadata")
        for _ in range(count):
            name = cursor.text()
            metadata[name] = cursor.text()
    sync = cursor.take(SYNC_BYTES)
    compression = BLOCK if by_block else RECORD if compressed else NONE
    return Header(version, key_class, value_class, compression, codec, metadata, sync, cursor.at)


def read(data: bytes, *, max_value_bytes: int = MAX_VALUE_BYTES) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a file in order.

    Raises:
        Malformed: at the first bytes that cannot be read.
    """
    try:
        header = read_header(data)
        records = read_blocks if header.compression == BLOCK else read_records
        for key, value in records(data, header):
            if len(key) > MAX_KEY_BYTES or len(value) > max_value_bytes:
                raise Malformed("a key or a value over the limit")
            yield key, value
    except DAMAGE as error:
        raise Malformed(str(error)) from error


def read_records(data: bytes, header: Header) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a file that compresses at most single values."""
    read_key, read_value = READ_FIELD[header.key_class], READ_FIELD[header.value_class]
    decompress = DECOMPRESS[header.codec] if header.codec is not None else None
    at, end = header.end, len(data)
    while at < end:
        if INT.unpack_from(data, at)[0] == SYNC_ESCAPE:
            check_sync(data[at + 4 : at + 4 + SYNC_BYTES], header)
            at += 4 + SYNC_BYTES
            continue
        size, key_size = TWO_INTS.unpack_from(data, at)
        start = at + TWO_INTS.size
        at = start + size
        if not 0 <= key_size <= size or at > end:
            raise Malformed(f"byte {start}: a record of {size} bytes with a key of {key_size}")
        value = data[start + key_size : at]
        if decompress is not None:
            value = decompress(value)
        yield read_key(data[start : start + key_size]), read_value(value)


def read_blocks(data: bytes, header: Header) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of blocks, whose keys and values are compressed together."""
    read_key, read_value = READ_FIELD[header.key_class], READ_FIELD[header.value_class]
    assert header.codec is not None
    decompress = DECOMPRESS[header.codec]
    cursor = Cursor(data, header.end)
    while cursor.at < len(data):
        if cursor.integer() != SYNC_ESCAPE:
            raise Malformed("a block without a sync mark")
        check_sync(cursor.take(SYNC_BYTES), header)
        count = cursor.vint()
        if count < 0:
            raise Malformed(f"a block of {count} records")
        key_lengths, keys, value_lengths, values = (decompress(cursor.take(cursor.vint())) for _ in range(4))
        pairs = zip(split(key_lengths, keys, count), split(value_lengths, values, count), strict=True)
        for key, value in pairs:
            yield read_key(key), read_value(value)


def split(lengths: bytes, fields: bytes, count: int) -> Iterator[bytes]:
    """Yield `count` fields of the given lengths, which must use up both buffers."""
    length_at = start = 0
    for _ in range(count):
        length, length_at = read_vint(lengths, length_at)
        end = start + length
        if length < 0 or end > len(fields):
            raise Malformed("lengths that do not fit their fields")
        yield fields[start:end]
        start = end
    if length_at != len(lengths) or start != len(fields):
        raise Malformed("a block of fewer lengths or longer fields than it says")


def check_sync(found: bytes, header: Header) -> None:
    """Check that a sync mark is that of the header."""
    if found != header.sync:
        raise Malformed("a wrong sync mark")


# -- writing ---------------------------------------------------------------------------------------------------------


def vint(number: int) -> bytes:
    if -112 <= number <= 127:
        return bytes([number & 255])
    mark, rest = (-120, ~number) if number < 0 else (-112, number)
    size = (rest.bit_length() + 7) // 8
    return bytes([(mark - size) & 255]) + rest.to_bytes(size, "big")


def text(data: bytes) -> bytes:
    return vint(len(data)) + data


def bytes_writable(data: bytes) -> bytes:
    return INT.pack(len(data)) + data


def number_writable(data: bytes, *, size: int) -> bytes:
    """Encode decimal text as an IntWritable or a LongWritable."""
    return int(data).to_bytes(size, "big", signed=True)


def variable_writable(data: bytes) -> bytes:
    """Encode decimal text as a VIntWritable or a VLongWritable."""
    return vint(int(data))


WRITE_FIELD: dict[str, Callable[[bytes], bytes]] = {
    TEXT: text,
    BYTES: bytes_writable,
    NULL: read_null,
    INT_WRITABLE: functools.partial(number_writable, size=4),
    LONG_WRITABLE: functools.partial(number_writable, size=8),
    VINT_WRITABLE: variable_writable,
    VLONG_WRITABLE: variable_writable,
}


def in_pieces(data: bytes, pieces: int) -> list[bytes]:
    """Cut data into at most so many pieces, and at least one."""
    size = max(1, -(-len(data) // pieces))
    return [data[at : at + size] for at in range(0, len(data), size)] or [data]


def compress_streams(compress: Callable[[bytes], bytes], data: bytes, pieces: int) -> bytes:
    return b"".join(compress(piece) for piece in in_pieces(data, pieces))


def compress_chunks(compress: Callable[[bytes], bytes], data: bytes, pieces: int) -> bytes:
    """Put half of the pieces under each raw size; no data becomes a single raw size of 0."""
    if not data:
        return UNSIGNED.pack(0)
    written = b""
    for half in in_pieces(data, 2 if pieces > 1 else 1):
        chunks = [compress(piece) for piece in in_pieces(half, pieces)]
        written += UNSIGNED.pack(len(half)) + b"".join(UNSIGNED.pack(len(chunk)) + chunk for chunk in chunks)
    return written


def gzip_member(data: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def zstd_frame(data: bytes) -> bytes:
    """Return a frame without its content size, as Hadoop's streams write."""
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_raw(data: bytes) -> bytes:
    return lz4.block.compress(data, store_size=False)


COMPRESS: dict[str, Callable[[bytes, int], bytes]] = {
    CODECS + "DefaultCodec": functools.partial(compress_streams, zlib.compress),
    CODECS + "DeflateCodec": functools.partial(compress_streams, zlib.compress),
    CODECS + "GzipCodec": functools.partial(compress_streams, gzip_member),
    CODECS + "BZip2Codec": functools.partial(compress_streams, bz2.compress),
    CODECS + "SnappyCodec": functools.partial(compress_chunks, snappy_raw),
    CODECS + "Lz4Codec": functools.partial(compress_chunks, lz4_raw),
    CODECS + "ZStandardCodec": functools.partial(compress_streams, zstd_frame),
}


@dataclass(frozen=True)
class Kind:
    """The options of the writer."""

    version: int = 6
    key_class: str = TEXT
    value_class: str = TEXT
    compression: str = BLOCK
    codec: str = CODECS + "DefaultCodec"
    metadata: tuple[tuple[bytes, bytes], ...] = ()
    pieces: int = 1  # Streams or chunks per buffer.
    block_records: int = 100
    sync_every: int = 10  # Records between sync marks outside blocks.

    @property
    def sync(self) -> bytes:
        """Return 16 arbitrary bytes, which are the same for the same kind."""
        return random.Random(repr(self)).randbytes(SYNC_BYTES)


def write_header(kind: Kind) -> bytes:
    parts = [b"SEQ", bytes([kind.version]), text(kind.key_class.encode()), text(kind.value_class.encode())]
    parts.append(bytes([kind.compression != NONE, kind.compression == BLOCK]))
    if kind.compression != NONE:
        parts.append(text(kind.codec.encode()))
    if kind.version > 5:
        parts.append(INT.pack(len(kind.metadata)))
        parts += [text(part) for entry in kind.metadata for part in entry]
    return b"".join([*parts, kind.sync])


def write(records: Iterable[tuple[bytes, bytes]], kind: Kind) -> bytes:
    key_field, value_field = WRITE_FIELD[kind.key_class], WRITE_FIELD[kind.value_class]
    fields = [(key_field(key), value_field(value)) for key, value in records]
    mark = INT.pack(SYNC_ESCAPE) + kind.sync
    parts = [write_header(kind)]
    if kind.compression == BLOCK:
        for start in range(0, len(fields), kind.block_records):
            parts += [mark, write_block(fields[start : start + kind.block_records], kind)]
        return b"".join(parts)
    for number, (key, value) in enumerate(fields):
        if number and number % kind.sync_every == 0:
            parts.append(mark)
        stored = COMPRESS[kind.codec](value, kind.pieces) if kind.compression == RECORD else value
        parts += [TWO_INTS.pack(len(key) + len(stored), len(key)), key, stored]
    return b"".join(parts)


def write_block(fields: list[tuple[bytes, bytes]], kind: Kind) -> bytes:
    buffers = [
        b"".join(vint(len(key)) for key, _ in fields),
        b"".join(key for key, _ in fields),
        b"".join(vint(len(value)) for _, value in fields),
        b"".join(value for _, value in fields),
    ]
    stored = [COMPRESS[kind.codec](buffer, kind.pieces) for buffer in buffers]
    return vint(len(fields)) + b"".join(vint(len(buffer)) + buffer for buffer in stored)
