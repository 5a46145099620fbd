"""The debug build's invariants in storage notice the violations that only a bug of ours could cause.

Forged parts of runs have valid checksums, because damage by the disk is refused and not asserted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from gossipkv.storage._storage import RecordSorter, Scratch, SortedFileWriter
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.debug_build import ONLY_DEBUG_BUILD
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.test_runs import shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.storage._storage import OrderedRecords

pytestmark = ONLY_DEBUG_BUILD

ROOMY = 1 << 30
SMALL = 1  # The smallest budget of an index, which spills every 1,024 entries.
PART_HEADER_BYTES = 8
RECORD_BYTES = 13  # In a run: a key of one byte and no value.
ITEM_BYTES = 16


class ForgedParts(MemoryFiles):
    """Replaces parts of scratch files by forged ones of the same length, with valid checksums."""

    def __init__(self, forge: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._forge = forge

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write the forged part, and its header again."""
        if descriptor in self._scratches and len(data) > PART_HEADER_BYTES:
            data = self._forge(bytes(data))
            header = struct.pack("<II", len(data), crc32c(data))
            super().pwrite(descriptor, header, offset - PART_HEADER_BYTES)
        super().pwrite(descriptor, data, offset)


def writer_of(
    files: MemoryFiles, *, memory_bytes: int = ROOMY, compression: int = oracle.NONE, common_prefix: bytes = b""
) -> SortedFileWriter:
    """Return a writer of a file without records."""
    return SortedFileWriter(
        files,
        "a.gkv",
        memory_bytes=memory_bytes,
        compression=compression,
        seed=1,
        common_prefix=common_prefix,
        metadata=b"",
    )


def in_order(*keys: bytes, value: bytes = b"") -> OrderedRecords:
    sorter = RecordSorter(lambda: None, ROOMY)
    sorter.add_all([(key, value) for key in keys])
    return sorter.finish_adding()


def test_who_does_not_sort_is_noticed() -> None:
    sorter = RecordSorter(lambda: None, ROOMY)
    sorter.add_all([(b"b", b""), (b"a", b"")])
    with pytest.raises(AssertionError, match="records leave memory in the order of groups and keys"):
        sorter.write_group(writer_of(MemoryFiles()), 0, 2)


@pytest.mark.parametrize(
    ("forge", "invariant"),
    [
        (lambda part: part[RECORD_BYTES:] + part[:RECORD_BYTES], "a source yields records in the order"),
        (lambda part: part[:8] + b"\1" + part[9:], "a part has whole records"),
    ],
)
def test_a_run_that_is_none_is_noticed(forge: Callable[[bytes], bytes], invariant: str) -> None:
    """A forged run has records out of order, or parts that end inside a record."""
    files = ForgedParts(forge)
    sorter = RecordSorter(lambda: Scratch(files, "run-1.tmp"), ROOMY)
    sorter.add_all([(b"a", b""), (b"b", b"")])
    merge_of = sorter.put_aside()
    with pytest.raises(AssertionError, match=invariant):
        shared(files, merge_of, 0, 1).write_group(writer_of(MemoryFiles()), 0, 3)


def test_an_index_out_of_order_is_noticed() -> None:
    def forge(part: bytes) -> bytes:
        half = len(part) // ITEM_BYTES // 2 * ITEM_BYTES
        return part[half:] + part[:half]

    writer = writer_of(ForgedParts(forge), memory_bytes=SMALL)
    in_order(*(b"%06d" % number for number in range(5000))).write_group(writer, 0, 5000)
    with pytest.raises(AssertionError, match="entries arrive in the order of their home buckets"):
        writer.finish()


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_keys_that_do_not_ascend_are_noticed(compression: int) -> None:
    """A key that repeats or that is less than the key before it is noticed."""
    for keys in [(b"a", b"a"), (b"b", b"a")]:
        writer = writer_of(MemoryFiles(), compression=compression)
        in_order(keys[0]).write_group(writer, 0, 1)
        with pytest.raises(AssertionError, match="keys ascend"):
            in_order(keys[1]).write_group(writer, 0, 1)


def test_keys_without_the_common_prefix_are_noticed() -> None:
    with pytest.raises(AssertionError, match="begin with b'user:'"):
        in_order(b"order:1").write_group(writer_of(MemoryFiles(), common_prefix=b"user:"), 0, 1)


@pytest.mark.parametrize(
    ("compression", "invariant"),
    [(oracle.NONE, "records lie end to end"), (oracle.LZ4, "an entry for each 4 KiB of positions")],
)
def test_writing_behind_the_end_is_noticed(compression: int, invariant: str) -> None:
    """A finished file refuses records and a second finish."""
    writer = writer_of(MemoryFiles(), compression=compression)
    in_order(b"a").write_group(writer, 0, 1)
    writer.finish()
    with pytest.raises(AssertionError, match="a file is finished once"):
        writer.finish()
    with pytest.raises(AssertionError, match=invariant):
        in_order(b"b", value=bytes(5000)).write_group(writer, 0, 1)


def test_a_pin_that_another_took_back_is_noticed() -> None:
    """A scan must release a pin of its own."""
    files = MemoryFiles()
    writer = writer_of(files)
    in_order(b"a").write_group(writer, 0, 1)
    writer.finish()
    with SortedFile(bytes(files.named["a.gkv"])) as file:
        scan = file.scan()
        file.unpin()
        with pytest.raises(AssertionError, match="a scan holds a pin of its own"):
            scan.close()
        file.pin()
        scan.close()
