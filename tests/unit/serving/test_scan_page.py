"""Pages of scans: the merge of many files, in one go or in slices, gives the records of a sorted list."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, TooLarge
from gossipkv.serving._serving import page
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import scan
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Record = tuple[bytes, bytes]


@dataclass
class Split:
    """Records, sorted, and the files that hold them."""

    records: list[Record]
    files: list[SortedFile]


def deal(
    directory: Path, records: Mapping[bytes, bytes], count: int, compression: str = "none", *, name: str = "f"
) -> Split:
    """Distribute records randomly among `count` files, some of which may be empty."""
    draw = random.Random(count)
    hands: list[dict[bytes, bytes]] = [{} for _ in range(count)]
    for key, value in records.items():
        draw.choice(hands)[key] = value
    files = []
    for number, hand in enumerate(hands):
        path = directory / f"{name}{number}.gkv"
        build(path, hand.items(), compression=compression)
        files.append(SortedFile(path, cache_bytes=4096))
    return Split(sorted(records.items()), files)


def kinds_of_records() -> dict[str, dict[bytes, bytes]]:
    """Return sets of keys that are hard to merge."""
    draw = random.Random(7)
    words = [b"", b"\0", b"\0\0", b"\xff", b"\xff" * 8, b"\xff" * 9, b"\xff" * 20, b"a", b"a\0", b"ab"]
    return {
        "none": {},
        "one": {b"only": b"one"},
        "odd": {word: b"value of " + word for word in words} | {word + b"x": b"" for word in words},
        # The first eight bytes and more are equal, so that whole keys must be compared.
        "alike": {b"begin" + b"the same for all of them " + b"%03d" % number: b"v" * number for number in range(150)},
        "apart": {draw.randbytes(draw.randrange(1, 20)): draw.randbytes(draw.randrange(60)) for _ in range(400)},
        "long": {b"k%02d" % number: draw.randbytes(draw.choice([0, 10, 3000, 9000])) for number in range(40)},
    }


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    """Return each kind of records in 1, 2, 5 and 13 files, plain and compressed."""
    compressions: list[str] = ["none", "lz4"]
    directory = tmp_path_factory.mktemp("page")
    return [
        deal(directory, records, count, compression, name=f"{kind}-{count}-{compression}-")
        for kind, records in kinds_of_records().items()
        for count in (1, 2, 5, 13)
        for compression in compressions
    ]


@dataclass(frozen=True)
class Ask:
    """The options of a page."""

    start: bytes | None = None
    end: bytes | None = None
    reverse: bool = False
    limit: int = 1 << 30
    max_bytes: int = 1 << 30
    max_value: int = 1 << 30


def expect(split: Split, asked: Ask) -> tuple[list[list[bytes]], bytes | None]:
    found, more = scan.page(
        split.records,
        asked.start,
        asked.end,
        reverse=asked.reverse,
        limit=asked.limit,
        page_bytes=asked.max_bytes,
    )
    return [[key, value] for key, value in found], found[-1][0] if more else None


def make(split: Split, asked: Ask, work: int = 1 << 30) -> tuple[list[list[bytes]], bytes | None]:
    """Return the decoded page and its last key; the encoding must be msgpack's own."""
    packed, last = page(
        split.files,
        asked.start,
        asked.end,
        asked.reverse,
        asked.limit,
        asked.max_bytes,
        asked.max_value,
        work,
    )
    records = msgpack.unpackb(packed, raw=True)
    assert packed == msgpack.packb(records)
    return records, last


KEYS = st.sampled_from(sorted({key for records in kinds_of_records().values() for key in records}))
BOUNDS = st.none() | st.binary(max_size=3) | KEYS | KEYS.map(lambda key: key + b"\0")


ASKED = st.builds(
    Ask,
    start=BOUNDS,
    end=BOUNDS,
    reverse=st.booleans(),
    limit=st.integers(1, 12) | st.integers(1, 500),
    max_bytes=st.integers(-5, 300) | st.integers(1, 30_000),
)


@given(kind=st.integers(0, 47), asked=ASKED, work=st.integers(1, 60) | st.just(1 << 30))
def test_a_page_is_that_of_a_sorted_list(splits: list[Split], kind: int, asked: Ask, work: int) -> None:
    """The page agrees for any keys, files, bounds and limits, wherever it is interrupted."""
    assert make(splits[kind], asked, work) == expect(splits[kind], asked)


@pytest.mark.parametrize("reverse", [False, True])
def test_all_pages_are_all_records(splits: list[Split], reverse: bool) -> None:
    """Every split is scanned with three records a page and one unit of work a slice."""
    for split in splits:
        found: list[list[bytes]] = []
        start: bytes | None = None
        end: bytes | None = None
        while True:
            records, last = make(split, Ask(start, end, reverse, limit=3), work=1)
            found += records
            if last is None:
                break
            assert records[-1][0] == last
            start, end = (None, last) if reverse else (last + b"\0", None)
        expected = [[key, value] for key, value in split.records]
        assert found == (expected[::-1] if reverse else expected)


def test_a_value_over_the_limit(tmp_path: Path) -> None:
    """The value is TOO_LARGE in the first place; otherwise the page ends before it."""
    split = deal(tmp_path, {b"a": b"x", b"b": b"y" * 101, b"c": b"z"}, 2)
    assert make(split, Ask(max_value=100)) == ([[b"a", b"x"]], b"a")
    with pytest.raises(TooLarge) as caught:
        make(split, Ask(b"a\0", max_value=100))
    assert caught.value.details == {"limit": 100, "size": 101}
    assert make(split, Ask(b"a\0", max_value=101)) == ([[b"b", b"y" * 101], [b"c", b"z"]], None)


@pytest.mark.parametrize("work", [1, 1 << 30])
@pytest.mark.parametrize("reverse", [False, True])
def test_damage_is_raised_where_it_is_met(tmp_path: Path, reverse: bool, work: int) -> None:
    """Pages that do not meet the damage are complete; others raise an error that names the file."""
    records = {b"key%05d" % number: b"v" * 50 for number in range(3000)}
    deal(tmp_path, records, 2).files[0].close()
    image = bytearray((tmp_path / "f1.gkv").read_bytes())
    at = image.index(b"key01500") if b"key01500" in image else image.index(b"key01501")
    image[at + 12] ^= 1
    split = Split(sorted(records.items()), [SortedFile(tmp_path / "f0.gkv"), SortedFile(bytes(image), name="broken")])
    edges = (b"key01700", None) if reverse else (None, b"key01300")
    asked = Ask(*edges, reverse)
    assert make(split, asked, work) == expect(split, asked)
    with pytest.raises(Corrupt, match="broken"):
        make(split, Ask(reverse=reverse), work)


def test_closed_files_are_refused(tmp_path: Path) -> None:
    split = deal(tmp_path, {b"a": b"x"}, 2)
    split.files[1].close()
    with pytest.raises(ValueError, match="closed"):
        make(split, Ask())
