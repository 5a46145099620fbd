"""Golden files are unchanged, today's reader answers from them, and today's builder writes them again."""

from __future__ import annotations

import hashlib

import pytest

from gossipkv.storage.sorted_file import SortedFile
from tests.golden import make_golden
from tests.oracle import sorted_file as oracle
from tests.unit.storage.records import built, misses

FILES = [(name, compression) for name in make_golden.GOLDEN for compression in make_golden.COMPRESSIONS]
# The seed comes from all records of the build, so a file with another seed is a part of a larger build.
BUILDABLE = [(name, compression) for name, compression in FILES if make_golden.GOLDEN[name][2] is None]


def golden(name: str, compression: str) -> bytes:
    return (make_golden.HERE / f"{name}-{compression}.gkv").read_bytes()


def test_the_files_are_those_that_were_made() -> None:
    """Every file has its checksum, and every checksum its file."""
    sums = dict(line.split()[::-1] for line in make_golden.SUMS.read_text().splitlines())
    kept = [path for path in make_golden.HERE.iterdir() if path.suffix in {".gkv", ".document", ".log"}]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
    assert found == sums
    assert sum(name.endswith(".gkv") for name in found) == len(FILES) == 8


@pytest.mark.parametrize(("name", "compression"), FILES)
def test_the_oracle_still_agrees(name: str, compression: str) -> None:
    """The oracle reads the files, finds every rule kept, and writes the uncompressed ones again."""
    image = golden(name, compression)
    file = oracle.File(image)
    file.check()
    records, metadata, _ = make_golden.GOLDEN[name]
    assert file.items() == sorted(dict(records).items())
    assert file.metadata == metadata
    assert all(file.get(key) == value for key, value in dict(records).items())
    assert file.get(b"missing") is None
    if compression == "none":
        assert make_golden.image(name, compression) == image


@pytest.mark.parametrize(("name", "compression"), FILES)
def test_the_reader_answers_from_them(name: str, compression: str) -> None:
    records, metadata, _ = make_golden.GOLDEN[name]
    held = dict(records)
    in_order = sorted(held.items())
    asked = [*held, *misses(records)]
    expected = [held.get(key) for key in asked]
    with SortedFile(make_golden.HERE / f"{name}-{compression}.gkv") as file:
        assert len(file) == len(held)
        assert file.metadata == metadata
        assert [file.get(key) for key in asked] == file.get_many(asked) == expected
        assert list(file.scan()) == in_order
        assert list(file.scan(reverse=True)) == in_order[::-1]
        for prefix in (b"user:0001", b"prefix", b"zeros\0", b"noise", b"monkey:1", "日".encode()):
            for reverse in (False, True):
                assert list(file.scan(prefix=prefix, reverse=reverse)) == oracle.select(
                    in_order, prefix=prefix, reverse=reverse
                )
        assert file.describe()["duplicates"] == len(records) - len(held)
        file.verify()


@pytest.mark.parametrize(("name", "compression"), BUILDABLE)
def test_the_builder_writes_them_again(name: str, compression: str) -> None:
    """The bytes are the same; with lz4 only the parts that lz4 does not choose."""
    records, metadata, _ = make_golden.GOLDEN[name]
    image, expected = built(records, compression=compression, metadata=metadata), golden(name, compression)
    if compression == "none":
        assert image == expected
        return
    mine, theirs = oracle.File(image), oracle.File(expected)
    mine.check()
    assert list(mine.units()) == list(theirs.units())
    assert (mine.index, mine.anchors, mine.metadata) == (theirs.index, theirs.anchors, theirs.metadata)
    assert (mine.footer.seed, mine.footer.duplicates) == (theirs.footer.seed, theirs.footer.duplicates)
