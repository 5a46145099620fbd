"""Sorted files as a source: the oracle's files are read, and damage is named."""

import dataclasses

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.formats import sorted_files
from gossipkv.dataset.formats._formats import Placement, decompress_block, fill_records, first_longer, record_span
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import Corrupt, SourceError, UnsupportedFormat
from gossipkv.keyspace.partitioner import FUNCTIONS, code, partition
from gossipkv.storage.batch import RecordBatch
from gossipkv.storage.label import read_label
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.formats.cut_reader import CutReader, everything
from tests.world.sorted_files import build

EDGES = (0, 1, 127, 128, 4079, 4080, 4088, 4096, 8184, 16_383, 16_384, 70_000)
RECORDS = st.dictionaries(
    st.binary(max_size=12), st.one_of(st.binary(max_size=30), st.sampled_from(EDGES).map(lambda size: b"e" * size)),
    max_size=40,
)  # fmt: skip
BOTH = pytest.mark.parametrize("compression", ["none", "lz4"])


def read(data, name="a.gkv", **options):
    return everything(sorted_files.batches(CutReader(data, name=name), FileReading(**options)))


@given(RECORDS, st.sampled_from([oracle.NONE, oracle.LZ4]))
def test_what_the_oracle_wrote_comes_out_in_order(records, compression):
    """Offsets are those of the record, or of its compressed block."""
    data = oracle.write(records.items(), compression=compression)
    found, offsets = read(data)
    assert found == sorted(records.items())
    file = oracle.File(data)
    if compression == oracle.NONE:
        assert offsets == [64 + position for position, _, _ in file.positions()]
    else:
        assert offsets == [file.table[position // 4096] & ~oracle.STORED_AS_IS for position, _, _ in file.positions()]


@BOTH
def test_memory_is_a_piece_and_no_more(tmp_path, compression):
    """A batch never refers to more than a piece and the unit that filled it."""
    build(tmp_path / "a.gkv", ((b"%06d" % n, b"z" * 900) for n in range(9000)), compression=compression)
    reader = CutReader((tmp_path / "a.gkv").read_bytes())
    for batch in sorted_files.batches(reader, FileReading()):
        assert sum(len(key) + len(value) for key, value in batch) <= 2 << 20


@BOTH
def test_every_changed_byte_of_records_is_found(compression):
    """No changed record is handed out."""
    records = [(b"key %03d" % n, b"value %d" % n * 9) for n in range(300)]
    data = bytearray(oracle.write(records, compression=oracle.LZ4 if compression == "lz4" else oracle.NONE))
    end = read_label(CutReader(data)).records_end
    for at in range(64, end, 37):
        data[at] ^= 1 << at % 8
        with pytest.raises(Corrupt, match=rf"a\.gkv: damaged at byte {at // 4096 * 4096}: a page's checksum"):
            read(data)
        data[at] ^= 1 << at % 8
    assert read(data)[0] == records
    for size_bytes in range(0, len(data), 97):
        with pytest.raises((Corrupt, UnsupportedFormat), match=r"a\.gkv"):
            read(data[:size_bytes])


def sealed(data, change=None, **footer):
    """Return a file with a changed body and valid checksums."""
    file = oracle.File(data)
    body = bytearray(data[: file.footer.body_bytes])
    if change is not None:
        change(body)
    return oracle.seal(bytes(body), dataclasses.replace(file.footer, **footer))


@pytest.mark.parametrize("head", [b"\xff\xff\xff\xff", b"\x07\xff\xff\xff\xff", b"\xff\xff\x07\0", b"\x7f\xff\xff\x7f"])
def test_a_record_that_cannot_be_is_refused_where_it_stands(head):
    """The checksum holds, but the record exceeds the limits or its file."""
    data = oracle.write([(b"a%02d" % n, b"value") for n in range(40)])

    def change(body):
        body[64 + 16 * 3 : 64 + 16 * 3 + len(head)] = head

    with pytest.raises(Corrupt, match=r"damaged at byte 112: a record is longer than its file or than the limit"):
        read(sealed(data, change))


def test_a_bomb_is_no_larger_than_its_blocks():
    """A block that decompresses to more than its unit's blocks is damaged."""
    assert decompress_block(lz4.block.compress(b"a" * 4096, store_size=False), 0, 0, 10) is None
    bomb = lz4.block.compress(b"a" * 100_000, store_size=False)
    assert len(decompress_block(bomb, 0, len(bomb), 4096) or b"") <= 4096
    for wrong in ((-1, 2, 10), (2, 1, 10), (0, len(bomb) + 1, 10), (0, 1, 0), (0, 1, 1 << 30)):
        with pytest.raises(ValueError, match="cannot be decompressed"):
            decompress_block(bomb, *wrong)


def test_a_value_over_the_limit_is_refused_with_its_place():
    """The limit is the reader's."""
    data = oracle.write([(b"a", b"1234567"), (b"b", b"12345678"), (b"c", b"")])
    assert len(read(data, max_value_bytes=8)[0]) == 3
    with pytest.raises(
        SourceError, match=r"a.gkv: byte 80: the value of key 'b' has 8 bytes; the limit is 7"
    ) as caught:
        read(data, max_value_bytes=7)
    assert caught.value.details["offset"] == 80


def test_the_extension_checks_where_it_is_sent():
    """Places outside the data are refused, and incomplete records are not read."""
    data = oracle.encode(b"key", b"value")
    batch = RecordBatch()
    for wrong in (-1, len(data) + 1):
        for function in (lambda at: fill_records(batch, data, at, 0, 1), lambda at: record_span(data, at)):
            with pytest.raises(ValueError, match="the position must be from 0 to"):
                function(wrong)
    assert record_span(data, 0) == len(data) == fill_records(batch, data, 0, 100, 1)
    assert (list(batch), batch.offsets()) == ([(b"key", b"value")], [100])
    assert (first_longer(batch, 5), first_longer(batch, 4)) == (1, 0)
    for cut in range(1, len(data)):
        assert fill_records(batch, data[:cut], 0, 0, 1) == 0
        assert record_span(data[:cut], 0) == (8 if cut < 8 else len(data))
    assert len(batch) == 1


@given(
    st.lists(st.binary(max_size=4), min_size=1, max_size=30), st.sampled_from(FUNCTIONS), st.integers(1, 4),
    st.integers(1, 30),
)  # fmt: skip
def test_the_first_record_out_of_place_is_found(keys, function, partitions, batch_size):
    """The result is that of a Python loop, for any division into batches."""

    def of(key):
        try:
            return partition(function, key, partitions)
        except ValueError:
            return -1

    held = of(keys[0])
    expected = next(
        (n for n, key in enumerate(keys) if of(key) != held or held < 0 or (n and keys[n - 1] >= key)), len(keys)
    )
    placement = Placement(code(function), held, partitions)
    done = 0
    for at in range(0, len(keys), batch_size):
        batch = RecordBatch()
        for key in keys[at : at + batch_size]:
            batch.append(key, b"")
        wrong = placement.first_wrong(batch)
        done += wrong
        if wrong < len(batch):
            break
    if held >= 0:
        assert done == expected
