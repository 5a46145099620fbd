"""Tests that cost seconds; `test_sorted_file.py` has the others."""

from __future__ import annotations

import random

import pytest

from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.records import COMPRESSIONS, built, edge_cases, many
from tests.unit.storage.test_sorted_file import check_answers, check_scans, written


@pytest.mark.parametrize("cache_bytes", [0, 4096, 3 * 4096, 1 << 20])
def test_any_size_of_cache(way: str, cache_bytes: int) -> None:
    """Cached blocks that come and go change no answer."""
    records = edge_cases() + many(13, 300)
    with SortedFile(written(records, way), cache_bytes=cache_bytes) as file:
        check_answers(file, records)
        check_scans(file, records, 30)


def test_several_chunks_of_checksums(way: str) -> None:
    """A body of more than 4 MiB has page checksums of a second and a third chunk."""
    source = random.Random(16)
    records = [(b"%06d" % number, source.randbytes(900)) for number in range(11_000)]
    image = oracle.write(records, compression=COMPRESSIONS.index(way), crc=crc32c)
    assert oracle.Footer.unpack(image[-256:]).body_bytes > 2 * 4096 * 1024
    with SortedFile(image) as file:
        file.verify()
        assert file.get_many([key for key, _ in records]) == [value for _, value in records]
    with SortedFile(image) as file:
        assert list(file.scan(reverse=True, limit=5000)) == records[:5999:-1]
    with SortedFile(built(records, compression=way)) as file:
        assert [file.get(key) for key, _ in records[::-1]] == [value for _, value in records[::-1]]
    if way == "none":
        assert built(records) == image


def test_the_longest_value(way: str) -> None:
    """Values of 16 MiB, compressible and not, lie between small ones."""
    source = random.Random(17)
    most = 16 << 20
    records = [
        (b"a", b"first"),
        (b"b", source.randbytes(most)),
        (b"c", b"middle"),
        (b"d", bytes(most)),
        (b"e", b"last"),
    ]
    with SortedFile(built(records, compression=way)) as file:
        assert list(file.scan()) == records
        assert list(file.scan(reverse=True)) == records[::-1]
        assert file.get_many([b"d", b"b", b"d", b"c", b"b"]) == [records[at][1] for at in (3, 1, 3, 2, 1)]
        assert [file.get(key) for key, _ in records] == [value for _, value in records]
        file.verify()
