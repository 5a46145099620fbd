from __future__ import annotations

import dataclasses
import random
import re
import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.dataset.formats import sequence_file
from gossipkv.dataset.formats.reading import BLOCKS_IN_MEMORY, FileReading, enough_memory
from gossipkv.errors import SourceChanged, SourceError
from gossipkv.storage.batch import RecordBatch
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.readers import MemoryReader
from tests.unit.dataset.formats.sequence_files import CLASSES, CODECS, kinds, read, short

RECORDS = [(b"key %d" % number, b"value " * (number % 7)) for number in range(25)]
PLAIN = oracle.Kind(compression=oracle.NONE)
MARK = struct.pack(">i", -1)


def any_kind():
    return st.builds(
        oracle.Kind,
        version=st.just(5),
        key_class=st.sampled_from(CLASSES),
        value_class=st.sampled_from(CLASSES),
        compression=st.sampled_from([oracle.NONE, oracle.RECORD, oracle.BLOCK]),
        codec=st.sampled_from(CODECS),
        pieces=st.integers(1, 4),
        block_records=st.integers(1, 9),
        sync_every=st.integers(1, 5),
    ) | st.builds(
        oracle.Kind,
        metadata=st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=9)), max_size=3).map(tuple),
    )


def test_every_kind_is_read():
    """Every version, class, compression and codec is read back, in one stream or several."""
    number = 0
    for kind in kinds(block_records=10):
        data = oracle.write(RECORDS, kind)
        assert read(data) == RECORDS, kind
        assert list(oracle.read(data)) == RECORDS, kind
        number += 1
    assert number == 2 * 4 * (1 + 2 * 7 * 2)


@settings(max_examples=settings.default.max_examples * 2)
@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=30), any_kind())
def test_what_is_written_is_read(records, kind):
    """Any bytes in any kind are read back, and the oracle agrees."""
    data = oracle.write(records, kind)
    assert read(data) == records
    assert list(oracle.read(data)) == records


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.RECORD, oracle.BLOCK])
@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_windows_may_end_anywhere(monkeypatch, compression, window):
    """Records, sync marks, headers and buffers cross the ends; each byte is read once, in order."""
    monkeypatch.setattr(sequence_file, "WINDOW_BYTES", window)
    kind = oracle.Kind(compression=compression, sync_every=3, block_records=6)
    reader = MemoryReader(oracle.write(RECORDS, kind))
    assert [record for batch in sequence_file.batches(reader, FileReading()) for record in batch] == RECORDS
    at = 0
    for offset, size in reader.reads:
        assert offset == at
        assert offset % window == 0
        at += size
    assert at == reader.size_bytes


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.RECORD, oracle.BLOCK])
def test_no_records_are_legal(compression):
    """A job without records writes only a header."""
    kind = oracle.Kind(compression=compression)
    assert read(oracle.write([], kind)) == []
    if compression != oracle.BLOCK:
        assert read(oracle.write([], kind) + MARK + kind.sync) == []


def test_a_block_of_no_records_is_legal():
    """The block has four empty buffers."""
    kind = oracle.Kind()
    empty = MARK + kind.sync + oracle.write_block([], kind)
    assert read(oracle.write_header(kind) + empty + empty) == []


def test_sync_marks_may_follow_each_other():
    """Appending to a file writes another mark."""
    data = oracle.write(RECORDS, PLAIN)
    mark = MARK + PLAIN.sync
    assert mark in data
    assert read(data.replace(mark, mark * 3)) == RECORDS


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.RECORD, oracle.BLOCK])
def test_many_records_come_in_several_batches(compression):
    """A batch has at most 16,384 records; a record's offset is its own or its block's."""
    records = [(b"%d" % number, b"") for number in range(40_000)]
    kind = oracle.Kind(compression=compression, codec=CODECS[4], block_records=39_000)
    data = oracle.write(records, kind)
    found, sizes, offsets = [], [], []
    for batch in sequence_file.batches(MemoryReader(data), FileReading()):
        sizes.append(len(batch))
        found += batch
        offsets += batch.offsets()
    assert found == records
    assert max(sizes) == 16_384
    if compression == oracle.BLOCK:
        assert sizes == [16_384, 16_384, 6_232, 1_000]
        assert {data[offset : offset + 4] for offset in offsets} == {MARK}
        assert sorted(set(offsets)) == list(dict.fromkeys(offsets))
    else:
        for (key, _), offset in zip(records, offsets, strict=True):
            assert data[offset + 8 : offset + 9 + len(key)] == bytes([len(key)]) + key


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.RECORD, oracle.BLOCK])
@pytest.mark.parametrize("kind_class", CLASSES)
def test_records_at_the_limits_are_read_and_over_them_refused(compression, kind_class):
    """The longest key and value are read; one byte more of either is an error at that place."""
    kind = oracle.Kind(key_class=kind_class, value_class=kind_class, compression=compression, sync_every=1)
    first = (b"", b"")
    fits = [first, (b"k" * 65_535, b"v" * 1000), first]
    assert read(oracle.write(fits, kind), max_value_bytes=1000) == fits
    long_key = oracle.write([first, (b"k" * 65_536, b"")], kind)
    long_value = oracle.write([first, (b"", random.Random(1).randbytes(1001))], kind)
    for data, words in (
        (long_key, "the key has 65,5[0-9]+ bytes; the limit is 65,535"),
        (long_value, "the value has 1,0[0-9]+ bytes; the limit is 1,000"),
    ):
        with pytest.raises(SourceError, match=words) as caught:
            read(data, max_value_bytes=1000)
        offset = caught.value.details["offset"]
        if compression == oracle.BLOCK:
            assert data[offset : offset + 20] == MARK + kind.sync
            assert "record 2 of 2" in caught.value.details["reason"]
        else:
            assert data[offset - 20 : offset] == MARK + kind.sync


@pytest.mark.parametrize("codec", CODECS, ids=short)
def test_a_value_that_becomes_too_long_is_refused(codec):
    """The value is short in the file and too long when decompressed."""
    kind = oracle.Kind(compression=oracle.RECORD, codec=codec, sync_every=1)
    data = oracle.write([(b"", b""), (b"", bytes(100_000))], kind)
    with pytest.raises(SourceError, match="the data expand to more than 1,005 bytes") as caught:
        read(data, max_value_bytes=1000)
    offset = caught.value.details["offset"]
    assert data[offset - 20 : offset] == MARK + kind.sync


@pytest.mark.parametrize("codec", CODECS, ids=short)
def test_a_block_over_the_limit_is_refused_with_its_size(codec):
    """The error names Hadoop's setting for smaller blocks; a block at the limit is read."""
    kind = oracle.Kind(codec=codec)
    records = [(b"%03d" % number, bytes(990)) for number in range(100)]
    size = 100 * (1 + 4 + 3 + 993)
    data = oracle.write(records, kind)
    assert read(data, max_block_bytes=size) == records
    with pytest.raises(
        SourceError, match=r"has 100,100 bytes.*100,099 bytes.*io\.seqfile\.compress\.blocksize.*= 2MiB"
    ):
        read(data, max_block_bytes=size - 1)


@pytest.mark.parametrize("block_bytes", [1, 100_100, 22_369_621, 22_369_622, 64 << 20, (64 << 20) + 1])
def test_the_memory_that_would_do_does(block_bytes):
    """The memory named in the error suffices for that block, and a MiB less does not."""
    (told,) = re.findall(r"build_memory = (\d+)MiB is enough", enough_memory(block_bytes))
    assert (int(told) << 20) // BLOCKS_IN_MEMORY >= block_bytes
    assert (int(told) - 1 << 20) // BLOCKS_IN_MEMORY < block_bytes


def test_a_file_that_became_shorter_is_reported_as_changed():
    """The error of the reader passes through."""
    data = oracle.write(RECORDS, PLAIN)
    with pytest.raises(SourceChanged):
        list(sequence_file.batches(MemoryReader(data[:-1], listed_bytes=len(data)), FileReading()))


def refused(data, words, offset, **options):
    """Assert that reader and oracle refuse the file; the reader with these words at this offset."""
    with pytest.raises(SourceError) as caught:
        read(data, **options)
    error = caught.value
    assert type(error) is SourceError
    assert words in error.details["reason"]
    assert error.details == {"file": "part-00000", "offset": offset, "reason": error.details["reason"]}
    assert str(error) == f"part-00000: byte {offset:,}: {error.details['reason']}"
    if not options:
        with pytest.raises(oracle.Malformed):
            list(oracle.read(data))


HEADER = oracle.write_header(PLAIN)
TEXT_AT = 4
VALUE_CLASS_AT = TEXT_AT + 1 + len(oracle.TEXT)
FLAGS_AT = VALUE_CLASS_AT + 1 + len(oracle.TEXT)
METADATA_AT = FLAGS_AT + 2
READ = "Text, BytesWritable, NullWritable, IntWritable, LongWritable, VIntWritable, VLongWritable"


@pytest.mark.parametrize(
    ("data", "words", "offset"),
    [
        (b"", "the file is empty", 0),
        (b"SE", "begins with b'SE', not with b'SEQ'", 0),
        (b"key\tvalue\n", "begins with b'key', not with b'SEQ'", 0),
        (b"PAR1" * 9, "begins with b'PAR', not with", 0),
        (b"SEQ", "the version should have 1 bytes, but the file ends after 0", 3),
        *((b"SEQ%c" % version + HEADER[4:], f"has version {version};", 3) for version in (0, 1, 2, 3, 4, 7, 255)),
        (
            HEADER.replace(b"io.Text", b"io.Txet", 1),
            "the class of the keys is 'org.apache.hadoop.io.Txet'; of org.apache.hadoop.io.*, only Text, ",
            TEXT_AT,
        ),
        *(
            (
                oracle.write_header(dataclasses.replace(PLAIN, value_class=f"org.apache.hadoop.io.{name}Writable")),
                f"io.{name}Writable'; of org.apache.hadoop.io.*, only {READ}",
                VALUE_CLASS_AT,
            )
            for name in ("Byte", "Boolean", "Short", "Float", "Double", "Object", "Map", "Array")
        ),
        (HEADER[:4] + b"\x8d\x01\0\1" + HEADER[5:], "the class of the keys has 65,537 bytes; the limit", TEXT_AT),
        (
            HEADER[:4] + b"\x88\1\0\0\0\0\0\0\0" + HEADER[5:],
            "the class of the keys is not a number of 32 bits",
            TEXT_AT,
        ),
        (HEADER[:4] + b"\xff" + HEADER[5:], "the class of the keys is -1, which is out of range", TEXT_AT),
        (HEADER[:4] + b"\x87\xff" + HEADER[5:], "the class of the keys is -256, which is out of range", TEXT_AT),
        (
            HEADER[:FLAGS_AT] + b"\2" + HEADER[FLAGS_AT + 1 :],
            "the flag for compressed values is 2, which is neither",
            FLAGS_AT,
        ),
        (HEADER[:FLAGS_AT] + b"\0\1" + HEADER[FLAGS_AT + 2 :], "blocks without compression", FLAGS_AT),
        (
            HEADER[:FLAGS_AT] + b"\0\3" + HEADER[FLAGS_AT + 2 :],
            "the flag for blocks is 3, which is neither",
            FLAGS_AT + 1,
        ),
        (
            oracle.write_header(oracle.Kind(codec="com.hadoop.compression.lzo.LzoCodec")),
            "the codec is 'com.hadoop.compression.lzo.LzoCodec'; of Hadoop's, only DefaultCodec, DeflateCodec",
            METADATA_AT,
        ),
        (HEADER[:METADATA_AT] + b"\xff" * 4 + HEADER[METADATA_AT + 4 :], "-1 metadata entries; the limit", METADATA_AT),
        (
            HEADER[:METADATA_AT] + b"\0\0\4\1" + HEADER[METADATA_AT + 4 :],
            "1,025 metadata entries; the limit",
            METADATA_AT,
        ),
        (
            HEADER[:METADATA_AT] + b"\0\0\0\1\7" + bytes(6),
            "a name in the metadata should have 7 bytes, but",
            METADATA_AT + 5,
        ),
        (HEADER[:-1], "the sync mark should have 16 bytes, but the file ends after 15", len(HEADER) - 16),
    ],
)
def test_wrong_headers(data, words, offset):
    """Each fault of magic, version, classes, flags, codec or metadata is named with its place."""
    refused(data, words, offset)


def record(size, key_size, content):
    """Return a record with false lengths."""
    return struct.pack(">ii", size, key_size) + content


GOOD = record(4, 2, b"\1k\1v")


@pytest.mark.parametrize(
    ("tail", "words", "at"),
    [
        (b"\0", "the record has at least 4 bytes, but the file ends after 1", 0),
        (b"\0\0\0\4\0\0", "the record has at least 8 bytes", 0),
        (record(4, 2, b"\1k\1"), "the record has at least 12 bytes, but the file ends after 11", 0),
        (record(-2, 2, b"\1k\1v"), "the record has -2 bytes, but its key has 2", 0),
        (record(4, -1, b"\1k\1v"), "the record has 4 bytes, but its key has -1", 0),
        (record(4, 5, b"\1k\1v"), "the record has 4 bytes, but its key has 5", 0),
        (record(2**31 - 1, 2, b"\1k\1v"), "the value has 2,147,483,645 bytes; the limit is 16,777,216", 0),
        (record(2**31 - 1, 2**31 - 1, b""), "the key has 2,147,483,647 bytes; the limit is 65,535", 0),
        (record(1000, 2, b"\1k\1v"), "the record has at least 1,008 bytes", 0),
        (record(4, 1, b"\1k\1v"), "a key claims 1 bytes, but its field has room for 0", 0),
        (record(4, 3, b"\1k\1v"), "a key claims 1 bytes, but its field has room for 2", 0),
        (record(4, 0, b"\1k\1v"), "a length is truncated", 0),
        (record(2, 2, b"\1k"), "a length is truncated", 0),
        (record(4, 2, b"\1k\0v"), "a value claims 0 bytes, but its field has room for 1", 0),
        (record(4, 2, b"\1k\2v"), "a value claims 2 bytes, but its field has room for 1", 0),
        (record(4, 2, b"\1k\xffv"), "a value claims -1 bytes", 0),
        (record(4, 2, b"\1k\x8fv"), "a value claims 118 bytes", 0),
        (record(4, 2, b"\1k\x8ev"), "a length is truncated", 0),
        (record(7, 2, b"\1k\x8c\xff\xff\xff\xff"), "a length is not a number of 32 bits", 0),
        (record(7, 2, b"\1k\x84\x7f\xff\xff\xff"), "a value claims -2,147,483,648 bytes", 0),
        (record(8, 2, b"\1k\x8b\0\0\0\0\0"), "a length is not a number of 32 bits", 0),
        (GOOD + MARK + b"0123456789abcdef" + GOOD, "the sync mark differs from the file's", len(GOOD)),
        (GOOD + MARK + PLAIN.sync[:-1], "the record has at least 20 bytes, but the file ends after 19", len(GOOD)),
        (GOOD + MARK + PLAIN.sync + MARK + PLAIN.sync[::-1], "the sync mark differs from the file's", len(GOOD) + 20),
    ],
)
def test_wrong_records(tail, words, at):
    """Lengths are false, negative or cut, or marks are wrong, also behind good records and marks."""
    refused(HEADER + tail, words, len(HEADER) + at)
    good = (GOOD + MARK + PLAIN.sync) * 3
    refused(HEADER + good + tail, words, len(HEADER) + len(good) + at)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0\0\0\1k\0\0\0\2v", "a value claims 2 bytes, but its field has room for 1"),
        (b"\0\0\0\1k\xff\xff\xff\xffv", "a value claims -1 bytes"),
        (b"\0\0\0\2k\0\0\0\1v", "a key claims 2 bytes, but its field has room for 1"),
        (b"\0\0\0\1k\0\0\0", "a length is truncated"),
    ],
)
def test_wrong_bytes_writables(content, words):
    """The inner or the outer length is wrong."""
    kind = dataclasses.replace(PLAIN, key_class=oracle.BYTES, value_class=oracle.BYTES)
    header = oracle.write_header(kind)
    refused(header + record(len(content), 5, content), words, len(header))


@pytest.mark.parametrize("codec", CODECS, ids=short)
@pytest.mark.parametrize("pieces", [1, 2])
def test_wrong_compressed_values(codec, pieces):
    """The value is cut, followed by garbage, or not compressed; the record is named."""
    kind = oracle.Kind(compression=oracle.RECORD, codec=codec)
    header = oracle.write_header(kind) + record(2, 2, b"\1k")[:0]
    value = oracle.COMPRESS[codec](b"\x09some text", pieces)
    assert read(header + record(2 + len(value), 2, b"\1k" + value)) == [(b"k", b"some text")]
    for wrong in (value[:-1], value[:2], value + b"\0", value + b"garbage", b"\x09some text" * 3):
        refused(header + record(2 + len(wrong), 2, b"\1k" + wrong), "the value cannot be decompressed", len(header))
    short_value = oracle.COMPRESS[codec](b"\x09some", pieces)
    data = header + record(2 + len(short_value), 2, b"\1k" + short_value)
    refused(data, "a value claims 9 bytes, but its field has room for 4", len(header))


def block(count, *buffers, codec=CODECS[0], sizes=None):
    """Return a block with these buffers, and false sizes if given."""
    stored = [oracle.COMPRESS[codec](buffer, 1) for buffer in buffers]
    sizes = sizes or [len(part) for part in stored]
    kind = oracle.Kind(codec=codec)
    parts = [oracle.vint(size) + part for size, part in zip(sizes, stored, strict=True)]
    return MARK + kind.sync + oracle.vint(count) + b"".join(parts)


ONE = (b"\2", b"\1k", b"\2", b"\1v")
TWO = (b"\2\2", b"\1k\1l", b"\2\2", b"\1v\1w")


@pytest.mark.parametrize(
    ("count", "buffers", "words"),
    [
        (2, ONE, "the lengths end too early"),
        (1, TWO, "1 bytes follow the lengths"),
        (0, ONE, "the data expand to more than 0 bytes"),
        (1, (b"\3", *ONE[1:]), "the keys of the block have 2 bytes, but their lengths add up to 3"),
        (1, (b"\1", *ONE[1:]), "the keys of the block cannot be decompressed: the data expand to more than 1 bytes"),
        (1, (*ONE[:2], b"\3", ONE[3]), "the values of the block have 2 bytes, but their lengths add up to 3"),
        (
            1,
            (*ONE[:2], b"\1", ONE[3]),
            "the values of the block cannot be decompressed: the data expand to more than 1",
        ),
        (1, (b"\xff", *ONE[1:]), "a length is negative: -1"),
        (1, (*ONE[:2], b"\x87\xff", ONE[3]), "a length is negative: -256"),
        (1, (b"\x8c\xff\xff\xff\xff", *ONE[1:]), "a length is not a number of 32 bits"),
        (2, (b"\2\x8f", *ONE[1:]), "a length is truncated"),
        (1, (*ONE[:2], b"\2\0\0\0\0\0", ONE[3]), "the block cannot be decompressed: the data expand to more than 5"),
        (2, (b"\2\2", b"\1k\2l", b"\2\2", b"\1v\1w"), "record 2 of 2: a key claims 2 bytes"),
        (2, (b"\1\3", b"\1k\1l", b"\2\2", b"\1v\1w"), "record 1 of 2: a key claims 1 bytes"),
        (2, (*TWO[:3], b"\1v\0w"), "record 2 of 2: a value claims 0 bytes"),
        (2, (b"\0\4", *TWO[1:]), "record 1 of 2: a length is truncated"),
    ],
)
@pytest.mark.parametrize("codec", CODECS, ids=short)
def test_wrong_blocks(count, buffers, words, codec):
    """Counts, lengths and buffers contradict each other; the block is named, behind good ones too."""
    header = oracle.write_header(oracle.Kind(codec=codec))
    good = block(2, *TWO, codec=codec)
    assert len(read(header + good)) == 2
    wrong = block(count, *buffers, codec=codec)
    refused(header + wrong, words, len(header))
    refused(header + good + wrong + good, words, len(header) + len(good))


def test_wrong_frames_of_blocks():
    """The marks, counts and sizes around the buffers are wrong."""
    kind = oracle.Kind()
    header = oracle.write_header(kind)
    at = len(header)
    good = block(1, *ONE)
    refused(header + good[4:], "the sync mark at the beginning of the block is missing", at)
    refused(
        header + good + b"\0", "the sync mark of a block should have 4 bytes, but the file ends after 1", at + len(good)
    )
    refused(
        header + good + MARK + kind.sync, "the number of records in a block should have 1 bytes", at + len(good) + 20
    )
    refused(header + MARK + kind.sync[::-1] + good[20:], "the sync mark differs from the file's", at)
    mark = header + MARK + kind.sync
    refused(
        mark + oracle.vint(-1) + good[21:], "the number of records in a block is -1, which is out of range", at + 20
    )
    refused(
        mark + oracle.vint(2**31 - 1) + good[21:],
        "the block has at least 8,589,934,588 bytes; the limit is 67,108,864",
        at,
    )
    refused(header + block(1, *ONE, sizes=[-5] * 4), "the compressed size of the lengths of the keys is -5", at + 21)
    refused(header + block(1, *ONE, sizes=[10**6] * 4), "1,000,000 compressed bytes, which is too much for 5", at + 21)
    refused(
        header + block(1, *ONE, sizes=[1000] * 4),
        "the lengths of the keys of a block should have 1,000 bytes, but the",
        at + 24,
    )


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.RECORD, oracle.BLOCK])
def test_every_byte_of_a_sync_mark_counts(compression):
    """One wrong bit in any of the sixteen bytes is found, in the first mark or a later one."""
    kind = oracle.Kind(compression=compression, block_records=10)
    data = oracle.write(RECORDS, kind)
    places = [found.start() for found in re.finditer(re.escape(MARK + kind.sync), data)]
    assert len(places) >= 2
    for place in places:
        for byte in range(16):
            wrong = bytearray(data)
            wrong[place + 4 + byte] ^= 1 << byte % 8
            refused(bytes(wrong), "the sync mark differs from the file's", place)


SHAPE = {"key_class": oracle.TEXT, "value_class": oracle.TEXT, "max_value_bytes": 100, "name": "x"}


def test_batches_hold_what_they_point_into():
    """The buffers live exactly as long as a batch has records in them."""
    batch = RecordBatch()
    buffer = GOOD * 3
    free = sys.getrefcount(buffer)
    sequence_file.RecordDecoder(PLAIN.sync, **SHAPE).fill(batch, buffer, 0, 0)
    assert (list(batch), sys.getrefcount(buffer)) == ([(b"k", b"v")] * 3, free + 1)
    batch.clear()
    assert sys.getrefcount(buffer) == free

    value = bytearray(b"\1v")
    free = sys.getrefcount(value)
    sequence_file.RecordDecoder(PLAIN.sync, **SHAPE, decompress=lambda *_: value).fill(batch, GOOD, 0, 0)
    assert (list(batch), sys.getrefcount(value)) == ([(b"k", b"v")], free + 1)
    batch.clear()
    assert sys.getrefcount(value) == free

    buffers = [bytearray(part) for part in ONE]
    sequence_file.Block(buffers, 1, **SHAPE, offset=0).fill(batch)
    assert list(batch) == [(b"k", b"v")]
    for part in buffers:
        with pytest.raises(BufferError):
            part.append(0)
    batch.clear()
    for part in buffers:
        part.append(0)
