"""Pages of scans: what the merge of many files makes, in one go and in slices, is what a sorted list has."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import Corrupt, TooLarge
from gossipkv.node._scan_page import page
from gossipkv.storage.builder import build
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gossipkv.storage.compression import Compression

    Record = tuple[bytes, bytes]

EVERYTHING = (None, None, False, 1 << 30, 1 << 30, 1 << 30)


@dataclass
class Split:
    """Records, sorted, and the files among which they were dealt."""

    records: list[Record]
    files: list[SortedFile]


def deal(
    directory: Path, records: Mapping[bytes, bytes], count: int, compression: Compression = "none", *, name: str = "f"
) -> Split:
    """The records in so many files; which one has which is drawn, so some files may have none."""
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
    """Sets of keys on which a merge may stumble."""
    draw = random.Random(7)
    words = [b"", b"\0", b"\0\0", b"\xff", b"\xff" * 8, b"\xff" * 9, b"\xff" * 20, b"a", b"a\0", b"ab"]
    return {
        "none": {},
        "one": {b"only": b"one"},
        "odd": {word: b"value of " + word for word in words} | {word + b"x": b"" for word in words},
        # The same first eight bytes, and more, behind a common beginning: whole keys must be compared.
        "alike": {b"begin" + b"the same for all of them " + b"%03d" % number: b"v" * number for number in range(150)},
        "apart": {draw.randbytes(draw.randrange(1, 20)): draw.randbytes(draw.randrange(60)) for _ in range(400)},
        "long": {b"k%02d" % number: draw.randbytes(draw.choice([0, 10, 3000, 9000])) for number in range(40)},
    }


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    """Each kind of records in 1, 2, 5 and 13 files, plain and compressed."""
    compressions: list[Compression] = ["none", "lz4"]
    directory = tmp_path_factory.mktemp("page")
    return [
        deal(directory, records, count, compression, name=f"{kind}-{count}-{compression}-")
        for kind, records in kinds_of_records().items()
        for count in (1, 2, 5, 13)
        for compression in compressions
    ]


def expect(split: Split, *asked: object) -> tuple[list[list[bytes]], bytes | None]:
    """What the oracle says."""
    start, end, reverse, limit, max_bytes = asked
    found, more = scan.page(
        split.records,
        start,  # type: ignore[arg-type]  # Drawn with the right types.
        end,  # type: ignore[arg-type]
        reverse=bool(reverse),
        limit=limit,  # type: ignore[arg-type]
        page_bytes=max_bytes,  # type: ignore[arg-type]
    )
    return [[key, value] for key, value in found], found[-1][0] if more else None
