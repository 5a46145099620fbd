"""Compressed text: every compression, cut at any byte, damaged at any byte, and bombs."""

import gzip
import random
import struct
import zlib

import cramjam
import pytest
from backports import zstd

from gossipkv.dataset.formats import json_lines, tab_separated, text
from gossipkv.dataset.formats.reading import MORE_MEMORY, FileReading, enough_memory
from gossipkv.errors import SourceError
from tests.unit.dataset.formats.compressed import COMPRESS, hadoop
from tests.unit.dataset.formats.cut_reader import CutReader, everything

RANDOM = random.Random(30_021)
WORDS = [b"%x" % RANDOM.getrandbits(32) for _ in range(500)]
TEXT = b"".join(b"%d\t%s\n" % (number, b" ".join(RANDOM.choices(WORDS, k=number % 9))) for number in range(3000))


def read(suffix, stored, sizes=(1 << 18,), **options):
    pieces = list(text.chunks(CutReader(stored, sizes, f"part{suffix}"), FileReading(**options)))
    assert all(type(piece) is bytes and 0 < len(piece) <= max(text.STEP_BYTES, 1000) for piece in pieces)
    return b"".join(pieces)


def refused(suffix, stored, **options):
    with pytest.raises(SourceError) as caught:
        read(suffix, stored, **options)
    details = caught.value.details
    assert details["file"] == f"part{suffix}"
    assert 0 <= details["offset"] <= len(stored)
    return details["reason"]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("sizes", [(1 << 18,), (7, 100, 1)])
def test_text_comes_back(suffix, sizes):
    stored = COMPRESS[suffix](TEXT)
    assert read(suffix, stored, sizes) == TEXT
    assert read(suffix, stored + COMPRESS[suffix](b"") + stored, sizes) == TEXT * 2


@pytest.mark.parametrize("suffix", COMPRESS)
def test_nothing_is_no_text(suffix):
    """An empty file and an empty stream have no text."""
    assert read(suffix, b"") == b""
    assert read(suffix, COMPRESS[suffix](b"")) == b""


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_cut_file_is_no_text(suffix):
    """Only a cut at the end of a block goes unnoticed."""
    stored = COMPRESS[suffix](TEXT[:2500])
    ends = set()
    for end in range(1, len(stored)):
        try:
            assert TEXT.startswith(read(suffix, stored[:end]))
            ends.add(end)
        except SourceError as error:
            assert "truncated" in error.details["reason"]
    assert len(ends) == (2 if suffix in {".snappy", ".lz4"} else 0)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damage_is_an_error_or_no_difference(suffix):
    """Replaced bytes give one error, or other text if there is no checksum."""
    stored = COMPRESS[suffix](TEXT[:5000])
    refused_times = 0
    for _ in range(300):
        damaged = bytearray(stored)
        for _ in range(RANDOM.randint(1, 3)):
            damaged[RANDOM.randrange(len(damaged))] = RANDOM.randrange(256)
        try:
            found = read(suffix, bytes(damaged))
        except SourceError:
            refused_times += 1
        else:
            # Without a checksum the text may change; with one, only bytes that do not affect the text can.
            assert found == TEXT[:5000] or suffix not in {".gz", ".deflate", ".bz2"}
    assert refused_times > 10


def test_what_is_not_compressed_is_handed_through():
    """Names whose extensions mean something else change nothing."""
    for suffix in ("", ".tsv", ".parquet", ".gzip"):
        assert read(suffix, TEXT) == TEXT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.gz", ".gz"),
        ("s3://b/a.tsv.BZ2", ".bz2"),
        ("a.gz/part-0", None),
        ("a.xz", ".xz"),
        ("gz", None),
        (".gz", None),
    ],
)
def test_the_name_says_it(name, expected):
    """The last extension counts, in either case."""
    assert text.compression(name, b"a\t1\n") == expected


def test_other_compressions_are_named():
    """Their bytes are not read as lines."""
    assert "compress the file as one of" in refused(".xz", b"\xfd7zXZ")
    assert "only Hadoop's can be read" in refused(".snappy", bytes(cramjam.snappy.compress(TEXT)))
    assert "the gzip data are damaged" in refused(".gz", TEXT)
    assert "the zstd data are damaged" in refused(".zst", TEXT)
    assert "the file may not be in Hadoop's format" in refused(".snappy", TEXT)


def test_padding_follows_gzip_only():
    """Zeros may follow a gzip member, as on tapes; elsewhere they are damage."""
    stored = gzip.compress(TEXT)
    assert read(".gz", stored + bytes(1000), (777,)) == TEXT
    assert read(".gz", stored + bytes(1000) + stored) == TEXT * 2
    assert "the gzip data are damaged" in refused(".gz", stored + b"junk" * 3)
    assert "the zlib data are damaged" in refused(".deflate", zlib.compress(TEXT) + bytes(10))


def test_lying_blocks_are_refused():
    """Sizes exceed the limit, the file or the block; chunks are empty."""
    chunk = bytes(cramjam.snappy.compress_raw(b"x" * 100))
    assert "expands to 101 bytes; the limit is 100" in refused(".snappy", struct.pack(">I", 101), max_block_bytes=100)
    too_large = refused(".snappy", struct.pack(">I", 100 << 20))
    assert (
        f"the limit is 67,108,864 bytes; the file may not be in Hadoop's format; if it is, {enough_memory(100 << 20)}"
        in too_large
    )
    block = struct.pack(">II", 100, len(chunk))
    assert "the snappy chunk has 4,294,967,295 bytes" in refused(".snappy", struct.pack(">II", 100, 2**32 - 1))
    assert "the file is truncated: 50 bytes are expected, 1 bytes are left" in refused(
        ".lz4", struct.pack(">II", 100, 50) + b"x"
    )
    assert "the snappy data are damaged" in refused(".snappy", struct.pack(">II", 99, len(chunk)) + chunk)
    assert "the snappy data are damaged" in refused(".snappy", block + b"\xff" * len(chunk))
    assert "the snappy chunk is empty" in refused(".snappy", struct.pack(">II", 100, 1) + b"\0")
    assert read(".snappy", struct.pack(">I", 0) * 3 + block + chunk) == b"x" * 100


def test_a_window_over_the_limit_is_refused():
    """A zstd file asks for the memory of its window before the first byte."""
    options = {zstd.CompressionParameter.window_log: 22, zstd.CompressionParameter.compression_level: 1}
    compressor = zstd.ZstdCompressor(options=options)
    stored = compressor.compress(TEXT) + compressor.flush()
    assert read(".zst", stored, max_block_bytes=1 << 22) == TEXT
    assert f"too much memory for decoding; {MORE_MEMORY}" in refused(".zst", stored, max_block_bytes=(1 << 22) - 1)


def test_formats_read_compressed_lines():
    """Offsets are those of the text."""
    for suffix, compress in COMPRESS.items():
        reader = CutReader(compress(TEXT), (500,), f"part.tsv{suffix}")
        records, offsets = everything(tab_separated.batches(reader, FileReading()))
        assert len(records) == 3000
        assert all(TEXT.startswith(key + b"\t" + value, at) for (key, value), at in zip(records, offsets, strict=True))
    stored = gzip.compress(b'{"key":"a","value":1}\n{"key":"b"}')
    with pytest.raises(SourceError, match=r"part\.json\.gz: line 2, byte 22: the line has no field 'value'"):
        everything(json_lines.batches(CutReader(stored, name="part.json.gz"), FileReading()))


def test_one_large_block_is_held_and_no_more():
    """Chunks of a block share its buffer."""
    data = bytes(1 << 22)
    stored = hadoop(data, lambda chunk: bytes(cramjam.snappy.compress_raw(chunk)), 1 << 22, 1 << 16)
    pieces = list(text.chunks(CutReader(stored, name="x.snappy"), FileReading()))
    assert [len(piece) for piece in pieces] == [1 << 16] * 64
