"""Checked pages are checked again after their bits are cleared, in parts, or at each read of a distrusted file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt
from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle

if TYPE_CHECKING:
    from pathlib import Path

PAGE = oracle.PAGE
CHUNK_PAGES = PAGE // 4
RECORDS = 2_700  # A page each, which makes three chunks of checksums.


def key(number: int) -> bytes:
    """Return the key of a record that fills a page."""
    return b"%05d" % number


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a sorted file of three chunks, the last of them short."""
    place = tmp_path_factory.mktemp("checks")
    with SortedFileBuilder(place, ["f.gkv"]) as builder:
        for number in range(RECORDS):
            builder.add(key(number), b"%05d" % number * 815)
        builder.finish()
    return place / "f.gkv"


def footer_of(path: Path) -> oracle.Footer:
    return oracle.Footer.unpack(path.read_bytes()[-oracle.Footer.SIZE :])


def pages_of(path: Path) -> int:
    return -(-footer_of(path).body_bytes // PAGE)


def checked(file: SortedFile, pages: int) -> set[int]:
    """Return the pages that the next read does not check."""
    return {page for page in range(pages) if file.is_checked(page)}


def forget_slowly(known: set[int], pages: int, part: int, parts: int) -> set[int]:
    """Return the pages that stay checked, page by page; parts are cut between chunks."""
    chunks = -(-pages // CHUNK_PAGES)
    return {page for page in known if not part * chunks // parts <= page // CHUNK_PAGES < (part + 1) * chunks // parts}


PARTS = st.integers(1, 7).flatmap(lambda parts: st.tuples(st.integers(0, parts - 1), st.just(parts)))


@given(steps=st.lists(st.none() | PARTS, max_size=10))
def test_parts_are_forgotten_as_page_by_page(path: Path, steps: list[tuple[int, int] | None]) -> None:
    pages = pages_of(path)
    known: set[int] = set()
    with SortedFile(path) as file:
        for step in steps:
            if step is None:
                file.verify()
                known = set(range(pages))
            else:
                file.forget_checks(*step)
                known = forget_slowly(known, pages, *step)
            assert checked(file, pages) == known


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 1024])
def test_all_parts_together_are_the_file(path: Path, parts: int) -> None:
    """The number of parts may exceed that of chunks; most parts are then empty."""
    pages = pages_of(path)
    with SortedFile(path) as file:
        file.verify()
        for part in range(parts):
            file.forget_checks(part, parts)
        assert checked(file, pages) == set()


def test_damage_after_the_first_read_is_met_once_it_is_forgotten(path: Path) -> None:
    """Damage to a checked page, or to a page of checksums, is found and named only after `forget_checks`."""
    data = bytearray(path.read_bytes())
    with SortedFile(memoryview(data), name="f.gkv") as file:
        at = data.index(b"00007" * 815)
        before = file.get(key(7))
        data[at] ^= 1
        assert file.get(key(7)) != before
        file.forget_checks()
        with pytest.raises(Corrupt, match=r"f\.gkv.*page's checksum") as met:
            file.get(key(7))
        assert met.value.details["offset"] == at // PAGE * PAGE
        data[at] ^= 1
        assert file.get(key(7)) == before
        body_bytes = footer_of(path).body_bytes
        data[body_bytes + 4 * CHUNK_PAGES - 1] ^= 1
        assert file.get(key(7)) == before
        file.forget_checks()
        with pytest.raises(Corrupt, match="checksum of the page checksums") as met:
            file.get(key(7))
        assert met.value.details["offset"] == body_bytes


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.LZ4])
def test_a_distrusted_file_is_checked_at_every_read(compression: int) -> None:
    """Damage after any number of good reads is found by the next read."""
    data = bytearray(oracle.write([(b"a", b"x" * 500), (b"b", b"y" * 500)], compression=compression, metadata=b"m" * 9))
    with SortedFile(memoryview(data), name="f.gkv") as file:
        assert file.metadata == b"m" * 9
        file.distrust()
        assert file.metadata == b"m" * 9
        assert not file.is_checked(0)
        data[data.index(b"m" * 9)] ^= 1
        with pytest.raises(Corrupt):
            _ = file.metadata
        if compression == oracle.NONE:
            with pytest.raises(Corrupt):
                file.get(b"a")


def test_a_closed_file_has_nothing_to_forget(path: Path) -> None:
    file = SortedFile(path)
    file.verify()
    file.close()
    file.forget_checks()
    file.distrust()
