"""Text compressed as jobs and commands compress it, by code outside the package."""

import bz2
import gzip
import struct
import zlib

import cramjam
import lz4.frame
from backports import zstd

BLOCK_BYTES = 1000
CHUNK_BYTES = 300


def hadoop(text, compress, block_bytes=BLOCK_BYTES, chunk_bytes=CHUNK_BYTES):
    """Return Hadoop's blocks: the size of a block's text, then its chunks, each after its size."""
    stored = b""
    for start in range(0, len(text), block_bytes):
        block = text[start : start + block_bytes]
        stored += struct.pack(">I", len(block))
        for at in range(0, len(block), chunk_bytes):
            chunk = compress(block[at : at + chunk_bytes])
            stored += struct.pack(">I", len(chunk)) + chunk
    return stored


def snappy(text, **sizes):
    return hadoop(text, lambda chunk: bytes(cramjam.snappy.compress_raw(chunk)), **sizes)


def hadoop_lz4(text, **sizes):
    return hadoop(text, lambda chunk: bytes(cramjam.lz4.compress_block(chunk, store_size=False)), **sizes)


COMPRESS = {
    ".gz": gzip.compress,
    ".deflate": zlib.compress,
    ".bz2": bz2.compress,
    ".zst": zstd.compress,
    ".snappy": snappy,
    ".lz4": hadoop_lz4,
    "-frame.lz4": lz4.frame.compress,
}
