"""Tests that cost seconds; `test_sorted_file_damage.py` has the others."""

from __future__ import annotations

import contextlib
import random

import pytest

from gossipkv.errors import Corrupt
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.examination import MET, NAME, REFUSED
from tests.unit.storage.test_sorted_file_damage import SAMPLES, Sample, changed, outcomes


@pytest.fixture(params=SAMPLES)
def whole(request: pytest.FixtureRequest) -> Sample:
    return SAMPLES[request.param]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_every_bit_of_the_index(compression: str) -> None:
    """A place that is off by a bit may lead to a fake record, so the index's own checksum must fail first."""
    whole = SAMPLES[compression]
    image, footer, examine = whole.image, whole.footer, whole.examine
    answers = dict(zip(examine.asked, examine.answers, strict=True))
    at_home: dict[int, list[bytes]] = {}
    for key in answers:
        at_home.setdefault(oracle.home(oracle.hash64(key, footer.seed), footer.homes), []).append(key)
    wrong = []
    for at in range(footer.index, footer.anchors):
        for bit in range(8):
            damaged = changed(image, at, image[at] ^ 1 << bit)
            for key in at_home.get((at - footer.index) // 64, []):
                for ask in (lambda file, key: file.get(key), lambda file, key: file.get_many([key])[0]):
                    with contextlib.suppress(Corrupt):
                        if (found := ask(SortedFile(damaged, name=NAME), key)) != answers[key]:
                            wrong.append((at, bit, key, found))
    assert wrong == []


def test_many_bytes_changed(whole: Sample) -> None:
    """Several bytes, runs of zeros, or noise over whole stretches are changed at once."""
    source = random.Random(32)
    image = whole.image

    def damage() -> bytes:
        found = bytearray(image)
        for _ in range(source.randrange(1, 4)):
            at, size = source.randrange(len(found)), source.choice([1, 2, 8, 512, 4096])
            size = min(size, len(found) - at)
            found[at : at + size] = source.choice([bytes(size), source.randbytes(size), b"\xff" * size])
        return bytes(found)

    counts = outcomes(whole, (damage() for _ in range(4000)))
    assert counts[REFUSED] > 500
    assert counts[MET] > 500
