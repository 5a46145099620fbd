"""The hash index has the same buckets for any memory; crowded buckets overflow up to the limit and no further."""

from __future__ import annotations

import struct
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Corrupt, LimitExceeded
from gossipkv.storage._storage import RecordSorter, SortedFileWriter, hash64
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Iterator


SEED = 77
ROOMY = 1 << 30
MOST = 1024 + oracle.SLOTS  # One bucket holds twelve keys and may pass on 1,024.


def keys_at_home(homes: int, wanted: int) -> Iterator[bytes]:
    """Yield keys with one home bucket, as an attacker with the seed would send."""
    for number in count():
        key = b"monkey:%d" % number
        if oracle.home(hash64(key, SEED), homes) == wanted:
            yield key


def crowd(size: int, wanted: int) -> tuple[list[bytes], int]:
    """Return `size` keys with one home bucket in the file of these keys, and the number of home buckets."""
    homes = oracle.home_count(size)
    return sorted(islice(keys_at_home(homes, wanted % homes), size)), homes


def write(
    keys: list[bytes], *, memory_bytes: int = ROOMY, compression: int = 0, files: MemoryFiles | None = None
) -> bytes:
    """Build a file of these keys, each its own value, with the fixed seed."""
    files = MemoryFiles() if files is None else files
    sorter = RecordSorter(lambda: None, ROOMY)
    sorter.add_all([(key, key) for key in keys])
    sorter.finish_adding()
    writer = SortedFileWriter(
        files,
        "a.gkv",
        memory_bytes=memory_bytes,
        compression=compression,
        seed=SEED,
        common_prefix=sorter.common_prefix(0),
        metadata=b"",
    )
    try:
        assert sorter.write_group(writer, 0, len(keys) + 1) == len(keys)
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    finally:
        sorter.close()
    return bytes(files.named["a.gkv"])


@pytest.mark.parametrize("memory_bytes", [0, ROOMY])
def test_one_too_many_is_refused(memory_bytes: int) -> None:
    """No accident makes a crowd over the limit, so it is refused, and no file is left."""
    keys, _ = crowd(MOST + 1, 3)
    files = MemoryFiles()
    with pytest.raises(LimitExceeded, match="1024 keys collide"):
        write(keys, memory_bytes=memory_bytes, files=files)
    assert not files.named
    assert not files.opened


def test_equal_hashes_with_equal_fingerprints() -> None:
    """The records distinguish keys with equal bucket and fingerprint, in hits and in misses."""
    homes = oracle.home_count(30)
    same = [key for key in islice(keys_at_home(homes, 1), 20_000) if hash64(key, SEED) & 255 == 5]
    keys, strangers = sorted(same[:30]), same[30:50]
    assert len(strangers) == 20
    with SortedFile(write(keys)) as file:
        assert file.get_many(keys) == [file.get(key) for key in keys] == keys
        assert file.get_many(strangers) == [file.get(key) for key in strangers] == [None] * 20


def test_a_fingerprint_of_zero_is_no_empty_slot() -> None:
    """Such keys are found, and misses are misses although empty slots match."""
    zeros = [key for key in islice(keys_at_home(1, 0), 5000) if hash64(key, SEED) & 255 == 0]
    keys, strangers = sorted(zeros[:5]), zeros[5:]
    for compression in (oracle.NONE, oracle.LZ4):
        with SortedFile(write(keys, compression=compression)) as file:
            assert file.get_many(keys) == keys
            assert file.get_many(strangers) == [file.get(key) for key in strangers] == [None] * len(strangers)


def test_the_lowest_and_the_highest_hash() -> None:
    """The high halves of these hashes are 0 and 2^32 - 1 (found among billions), the ends of every slice."""
    ends = [number.to_bytes(8, "little") for number in (0x57766192, 0x16BC5DCF8, 0xE561462D, 0x208C968A3)]
    assert [hash64(key, SEED) >> 32 for key in ends] == [0, 0, 2**32 - 1, 2**32 - 1]
    for others in (0, 3000):
        keys = sorted([*ends, *(b"%d" % number for number in range(others))])
        expected = oracle.write([(key, key) for key in keys], seed=SEED)
        for memory_bytes in (0, ROOMY):
            image = write(keys, memory_bytes=memory_bytes)
            assert image == expected
            with SortedFile(image) as file:
                assert file.get_many(ends) == [file.get(key) for key in ends] == ends


def test_runs_that_come_back_changed() -> None:
    """Changed scratch entries are damage that names the scratch file, and never a wrong index."""
    keys = [b"%d" % number for number in range(5_000)]

    def lie_at(wrong: int, data: bytes, offset: int) -> bytes:
        return data[:-1] + b"?" if offset == wrong else data

    for at in (0, 8):  # The part's header, then the part.
        files = MemoryFiles()
        files.lie = partial(lie_at, at)
        with pytest.raises(Corrupt, match=r"a\.gkv\.\d+\.tmp: damaged at byte 0: .*scratch"):
            write(keys, memory_bytes=0, files=files)
        assert not files.named


def test_the_layout_of_one_bucket() -> None:
    """The bucket is checked byte by byte, without the oracle."""
    image = write([b"a", b"b"])
    index, buckets = struct.unpack_from("<QQ", image, len(image) - 256 + 48)
    assert buckets == 1
    bucket = image[index : index + 64]
    in_order = sorted([(hash64(b"a", SEED) >> 32, 1, b"a"), (hash64(b"b", SEED) >> 32, 2, b"b")])
    assert bucket[:12] == bytes(hash64(key, SEED) & 255 for _, _, key in in_order) + bytes(10)
    assert bucket[12:16] == bytes(4)
    assert struct.unpack("<12I", bucket[16:]) == (in_order[0][1], in_order[1][1], *[0] * 10)


def test_open_files_stay_few() -> None:
    """Hundreds of runs need few open files: a process may have about a thousand in all."""
    files = MemoryFiles()
    keys = [b"%06d" % number for number in range(300_000)]
    image = write(keys, memory_bytes=0, files=files)
    with SortedFile(image) as file:
        assert file.get_many(keys) == keys
    assert files.scratch_open_most <= 140
