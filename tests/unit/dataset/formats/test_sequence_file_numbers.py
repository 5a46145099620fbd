"""SequenceFiles whose keys or values are numbers or null."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.dataset.formats import sequence_file
from gossipkv.dataset.formats._formats import KINDS
from gossipkv.errors import SourceError
from gossipkv.storage.batch import RecordBatch
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.sequence_files import read

BITS = {oracle.INT_WRITABLE: 32, oracle.VINT_WRITABLE: 32, oracle.LONG_WRITABLE: 64, oracle.VLONG_WRITABLE: 64}
COMPRESSIONS = (oracle.NONE, oracle.RECORD, oracle.BLOCK)


def contents(class_name):
    """Return a strategy for the served contents of a field of that class."""
    if class_name == oracle.NULL:
        return st.just(b"")
    if class_name in BITS:
        most = 1 << BITS[class_name] - 1
        edges = [1 << power for power in range(BITS[class_name] - 1)]
        near = [edge + off for edge in edges for off in (-1, 0, 1)] + [113, 112, most - 1]
        signed = [number for each in near if each < most for number in (each, -each, ~each)]
        return (st.integers(-most, most - 1) | st.sampled_from(signed)).map(lambda number: str(number).encode())
    return st.binary(max_size=20)


def test_every_class_is_known_to_both():
    assert set(KINDS) == set(oracle.READ_FIELD) == set(oracle.WRITE_FIELD)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("classes", list(itertools.product(KINDS, KINDS)), ids=lambda two: "-".join(map(short, two)))
@settings(max_examples=max(2, settings.default.max_examples // 5))
@given(data=st.data())
def test_numbers_are_decimal_text(classes, compression, data):
    """Any pair of classes in any kind of file is read back, and the oracle agrees."""
    records = data.draw(st.lists(st.tuples(*map(contents, classes)), max_size=12))
    kind = oracle.Kind(5, *classes, compression=compression, block_records=5, sync_every=3)
    written = oracle.write(records, kind)
    assert read(written) == records
    assert list(oracle.read(written)) == records


def short(class_name):
    """Return the name of a class without its package."""
    return class_name.rpartition(".")[2].removesuffix("Writable")


# The bytes follow the documentation of Hadoop's `DataOutput` and `WritableUtils.writeVLong`.
FIELDS = [
    (oracle.NULL, "", b""),
    (oracle.INT_WRITABLE, "00000000", b"0"),
    (oracle.INT_WRITABLE, "7fffffff", b"2147483647"),
    (oracle.INT_WRITABLE, "80000000", b"-2147483648"),
    (oracle.INT_WRITABLE, "ffffffff", b"-1"),
    (oracle.LONG_WRITABLE, "0000000000000000", b"0"),
    (oracle.LONG_WRITABLE, "00000000ffffffff", b"4294967295"),
    (oracle.LONG_WRITABLE, "7fffffffffffffff", b"9223372036854775807"),
    (oracle.LONG_WRITABLE, "8000000000000000", b"-9223372036854775808"),
    (oracle.VINT_WRITABLE, "00", b"0"),
    (oracle.VINT_WRITABLE, "7f", b"127"),
    (oracle.VINT_WRITABLE, "90", b"-112"),
    (oracle.VINT_WRITABLE, "8f80", b"128"),
    (oracle.VINT_WRITABLE, "8770", b"-113"),
    (oracle.VINT_WRITABLE, "87ff", b"-256"),
    (oracle.VINT_WRITABLE, "8e0100", b"256"),
    (oracle.VINT_WRITABLE, "8c7fffffff", b"2147483647"),
    (oracle.VINT_WRITABLE, "847fffffff", b"-2147483648"),
    (oracle.VLONG_WRITABLE, "8c80000000", b"2147483648"),
    (oracle.VLONG_WRITABLE, "8480000000", b"-2147483649"),
    (oracle.VLONG_WRITABLE, "887fffffffffffffff", b"9223372036854775807"),
    (oracle.VLONG_WRITABLE, "807fffffffffffffff", b"-9223372036854775808"),
]


def plain(class_name, field):
    """Return two files of one record: with that field as the value, and as the key."""
    as_value = oracle.Kind(key_class=oracle.TEXT, value_class=class_name, compression=oracle.NONE)
    as_key = oracle.Kind(key_class=class_name, value_class=oracle.TEXT, compression=oracle.NONE)
    size = oracle.TWO_INTS.pack
    return (
        oracle.write_header(as_value) + size(2 + len(field), 2) + b"\1k" + field,
        oracle.write_header(as_key) + size(2 + len(field), len(field)) + field + b"\1v",
    )


@pytest.mark.parametrize(("class_name", "field", "text"), FIELDS)
def test_the_bytes_of_numbers(class_name, field, text):
    """The bytes were drawn by hand, not by the oracle; as a value and as a key."""
    as_value, as_key = plain(class_name, bytes.fromhex(field))
    assert read(as_value) == list(oracle.read(as_value)) == [(b"k", text)]
    assert read(as_key) == list(oracle.read(as_key)) == [(text, b"v")]


@pytest.mark.parametrize(
    ("class_name", "field"),
    [
        (oracle.NULL, "00"),
        (oracle.INT_WRITABLE, ""),
        (oracle.INT_WRITABLE, "000000"),
        (oracle.INT_WRITABLE, "0000000000"),
        (oracle.LONG_WRITABLE, "00000000"),
        (oracle.LONG_WRITABLE, "000000000000000000"),
        (oracle.VINT_WRITABLE, ""),
        (oracle.VINT_WRITABLE, "8f"),
        (oracle.VINT_WRITABLE, "8f8000"),
        (oracle.VINT_WRITABLE, "8c80000000"),
        (oracle.VINT_WRITABLE, "8480000000"),
        (oracle.VINT_WRITABLE, "8b0080000000"),
        (oracle.VLONG_WRITABLE, ""),
        (oracle.VLONG_WRITABLE, "887fffffffffffff"),
        (oracle.VLONG_WRITABLE, "888000000000000000"),
        (oracle.VLONG_WRITABLE, "808000000000000000"),
        (oracle.VLONG_WRITABLE, "0000"),
    ],
)
def test_what_is_no_number(class_name, field):
    """Fields that are too short, too long or too wide are refused with file and offset, as a value and as a key."""
    raw = bytes.fromhex(field)
    for data, what in zip(plain(class_name, raw), ("value", "key"), strict=True):
        with pytest.raises(SourceError, match=f"the {len(raw)} bytes of a {what} do not fit its class") as caught:
            read(data)
        assert caught.value.details["offset"] == len(data) - oracle.TWO_INTS.size - 2 - len(raw)
        with pytest.raises(oracle.Malformed):
            list(oracle.read(data))


def test_a_block_of_nothing():
    """A record of NullWritables has only its two lengths; a count beyond the bytes is refused early."""
    kind = oracle.Kind(key_class=oracle.NULL, value_class=oracle.NULL, block_records=30_000)
    data = oracle.write([(b"", b"")] * 30_000, kind)
    assert read(data, max_block_bytes=60_000) == [(b"", b"")] * 30_000
    with pytest.raises(SourceError, match="the block has at least 60,000 bytes; the limit is 59,999 bytes"):
        read(data, max_block_bytes=59_999)


def test_a_batch_holds_the_texts_of_its_numbers():
    """The texts outlive the decoder; a batch without numbers holds nothing."""
    kind = oracle.Kind(key_class=oracle.INT_WRITABLE, value_class=oracle.INT_WRITABLE, compression=oracle.NONE)
    data = oracle.write([(b"-5", b"1234567")], kind)
    batch = RecordBatch()
    decoder = sequence_file.RecordDecoder(kind.sync, kind.key_class, kind.value_class, 100, "x")
    decoder.fill(batch, data, len(oracle.write_header(kind)), 0)
    del decoder
    assert list(batch) == [(b"-5", b"1234567")]
    free = sys.getrefcount(data)
    batch.clear()
    assert sys.getrefcount(data) == free - 1
