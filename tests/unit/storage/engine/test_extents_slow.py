"""Tests that cost seconds; `test_extents.py` has the others."""

from __future__ import annotations

import random

import pytest

from tests.oracle import sorted_file
from tests.oracle.memtable import internal
from tests.unit.storage.engine.test_extents import WHOLE, Extents

SIZES = {"alike": lambda number: 50, "growing": lambda number: number // 100, "mixed": lambda number: number * 37 % 90}


@pytest.fixture(scope="module", params=SIZES)
def large(request: pytest.FixtureRequest) -> dict[bytes, bytes]:
    """Return thousands of records in one space, beside spaces of other sizes."""
    numbers = random.Random(8)
    layer = {internal(space, b"") + numbers.randbytes(8): b"\1" for space in (1, 2, 4) for _ in range(300)}
    value = SIZES[request.param]
    return layer | {internal(3, b"%05d" % number): b"\1" + b"v" * value(number) for number in range(6_000)}


CUTS = (700, 1_500, 3_000, 5_000)


@pytest.mark.parametrize("compression", [sorted_file.NONE, sorted_file.LZ4])
@pytest.mark.parametrize("memtables", [0, 1, 2])
@pytest.mark.parametrize("spread", ["evenly", "in halves"])
def test_many_keys(large: dict[bytes, bytes], memtables: int, spread: str, compression: int) -> None:
    """Either side of the middle key has at least a quarter, for trees of several levels and files of many pages.

    Two sources share the keys, so one source has half of them; evenly spread keys are nearly halved as a whole.
    """
    place = {key: number % 2 if spread == "evenly" else number < 3_500 for number, key in enumerate(sorted(large))}
    layers = [{key: value for key, value in large.items() if place[key] == source} for source in (0, 1)]
    drawn = Extents(layers, memtables, CUTS, compression)
    numbers = random.Random(memtables)
    keys = sorted(key[4:] for key in large if key[:4] == internal(3, b""))
    least = 0.25 if spread == "in halves" else 0.45
    starts = numbers.sample(range(len(keys) - 200), 12)
    for start, end in (WHOLE, *((keys[at], keys[numbers.randrange(at + 100, len(keys))]) for at in starts)):
        if compression == sorted_file.NONE:
            drawn.check(3, start, end)
        assert least - 0.02 <= drawn.share(3, start, end) <= 1 - least + 0.02
