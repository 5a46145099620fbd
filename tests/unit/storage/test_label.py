"""Labels and checked bodies agree with the footer, and refuse damage."""

import dataclasses
import struct

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.label import MAX_METADATA_BYTES, CheckedBody, OpenFile, read_label
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.formats.cut_reader import CutReader


def _fast(data, start=0):
    return crc32c(bytes(data), start)


RECORDS = [(b"key %04d" % number, b"value %d " % number * 30) for number in range(400)]


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
@pytest.mark.parametrize("metadata", [b"", b"{}", b"m" * 9000])
def test_a_label_says_what_the_footer_says(compression, metadata):
    data = oracle.write(RECORDS + RECORDS[:3], compression=compression, metadata=metadata)
    reader = CutReader(data, name="a.gkv")
    label = read_label(reader)
    footer = oracle.File(data).footer
    assert (label.name, label.size_bytes, label.records, label.duplicates) == ("a.gkv", len(data), 400, 3)
    assert (label.compression, label.metadata) == (("none", "lz4")[compression], metadata)
    assert (label.body_bytes, label.records_end) == (footer.body_bytes, footer.records_end)
    assert (label.blocks_at, label.blocks) == (footer.block_table, footer.blocks)
    assert reader.largest_read < 20_000


def test_metadata_of_somebody_else_are_not_fetched():
    """The label ignores a megabyte of metadata, which cannot be ours."""
    data = oracle.write(RECORDS[:1], metadata=b"m" * (MAX_METADATA_BYTES + 1), crc=_fast)
    assert read_label(CutReader(data)).metadata == b""


def test_what_is_no_sorted_file_is_told_apart_from_what_is_damaged():
    """The files: another kind, a newer format, an empty file, a truncated one."""
    data = oracle.write(RECORDS, metadata=b"{}")
    for wrong in (b"SEQ\x06", b"SEQ\x06" * 200, b"GKV", data[:0] + b"\0" * 5000):
        with pytest.raises(UnsupportedFormat, match=r"a\.gkv: not a sorted file"):
            read_label(CutReader(wrong, name="a.gkv"))
    newer = data[:8] + struct.pack("<I", 2) + data[12:-1]
    with pytest.raises(UnsupportedFormat, match="format 2, and this program reads format 1"):
        read_label(CutReader(newer))
    with pytest.raises(Corrupt, match="damaged at byte 0: the file is empty"):
        read_label(CutReader(b""))
    for cut in (8, 11, 12, 319, 320, len(data) - 256, len(data) - 1):
        with pytest.raises(Corrupt, match=f"damaged at byte {cut}: the footer is missing"):
            read_label(CutReader(data[:cut]))


def test_a_newer_footer_is_of_a_newer_format():
    data = oracle.write(RECORDS)
    footer = bytearray(data[-256:])
    footer[4:8] = struct.pack("<I", 7)
    footer[:4] = struct.pack("<I", oracle.crc32c(bytes(footer[4:])))
    with pytest.raises(UnsupportedFormat, match="format 7"):
        read_label(CutReader(data[:-256] + bytes(footer)))


def test_every_byte_of_the_footer_is_covered():
    """The metadata are covered as well."""
    whole = oracle.write(RECORDS[:20], metadata=b"{}")
    for at in range(len(whole) - 256, len(whole)):
        data = bytearray(whole)
        data[at] ^= 0x10
        with pytest.raises((Corrupt, UnsupportedFormat)):
            read_label(CutReader(data))


def test_footers_that_contradict_themselves_are_refused():
    """The checksums hold, but the numbers lead out of the file."""
    whole = oracle.write(RECORDS, metadata=b"{}", compression=oracle.LZ4)
    footer = oracle.File(whole).footer
    body = whole[: footer.body_bytes]
    changes = [
        {"records_end": 63}, {"records_end": len(whole)}, {"metadata": 2**63}, {"metadata_bytes": 2**40},
        {"blocks": 2**50}, {"block_table": 2**62}, {"compression": 2}, {"compression": oracle.NONE},
    ]  # fmt: skip
    for change in changes:
        data = oracle.seal(body, dataclasses.replace(footer, **change))
        with pytest.raises(Corrupt, match="contradicts itself"):
            read_label(CutReader(data))


def test_a_body_hands_out_every_byte_that_holds_and_none_that_does_not():
    """A flipped bit is found in a page, in its checksum, and in the checksum of the checksums."""
    values = [(b"k%05d" % number, b"%d" % number * 700) for number in range(2000)]
    data = bytearray(oracle.write(values, crc=_fast))
    size_bytes = read_label(CutReader(data)).body_bytes
    assert size_bytes > 1024 * 4096  # One chunk of checksums is not enough.
    body = CheckedBody(CutReader(data), size_bytes)
    for offset, length in ((0, 1), (4095, 2), (5000, 0), (0, size_bytes), (size_bytes - 1, 1), (4096 * 1023, 9000)):
        assert body.read(offset, length) == data[offset : offset + length]
    pages = -(-size_bytes // 4096)
    places = {4096 * 1030: 4096 * 1030, size_bytes + 4 * 1030: size_bytes + 4096, size_bytes + 4 * pages: size_bytes}
    for at, said in places.items():
        data[at] ^= 1
        with pytest.raises(Corrupt, match=f"damaged at byte {said}: "):
            CheckedBody(CutReader(data, name="x"), size_bytes).read(0, size_bytes)
        data[at] ^= 1


def test_an_open_file_that_became_shorter_says_so(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    files = RealFiles()
    descriptor = files.open(path)
    file = OpenFile(files, descriptor, "x")
    path.write_bytes(b"01")
    assert file.size_bytes == 10
    with pytest.raises(StorageError, match="x: the file became shorter"):
        file.read_at(0, 10)
    files.close(descriptor)
