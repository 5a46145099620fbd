"""FUZZ_FLIPS flipped bits in sorted files and documents: each flip is found, and no wrong value is read before."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gossipkv.storage import document
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.nightly.fuzz import bit_flips
from tests.nightly.fuzz.sorted_file_mutations import BASES, FOOTER_BYTES
from tests.oracle import sorted_file as oracle
from tests.unit.storage.examination import WrongAnswer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(7200)

FLIPS = int(os.environ.get("FUZZ_FLIPS", "20000"))
OUTCOMES = {"sorted: refused", "sorted: met", "sorted: answered", "document: refused"}


def test_each_flip_is_found(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    """Each value read meanwhile is right or an error, the reader never crashes, and every outcome occurs."""
    place = tmp_path / "case"
    module = [sys.executable, "-X", "faulthandler", "-m", bit_flips.__name__]
    done = subprocess.run([*module, "0", str(FLIPS), place], capture_output=True, text=True, check=False)
    case = place.read_text().strip()
    assert done.returncode == 0, f"replay: python -m {module[-1]} {case} 1\n{done.stderr[-2000:]}"
    counts = json.loads(done.stdout)
    record_property("measured", f"{FLIPS:,} flips of {bit_flips.STARTS[-1]:,} bits: {counts}")
    assert sum(counts.values()) == FLIPS
    assert set(counts) == OUTCOMES
    assert min(counts.values()) > FLIPS // 500


def test_each_bit_is_tried_once() -> None:
    """No bit is repeated before all have been tried."""
    bits = bit_flips.STARTS[-1]
    assert len({case * bit_flips.STEP % bits for case in range(bits)}) == bits


def test_a_reader_that_trusts_sorted_files_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that accepts any checksum reads a wrong value or misses the flip."""

    def trusting(image: bytes, *, name: str) -> SortedFile:
        base = next(base for base in BASES if differs_by_a_bit(base.image, image))
        body = image[: base.footer.body_bytes]
        return SortedFile(oracle.seal(body, base.footer, crc32c), name=name)

    monkeypatch.setattr(bit_flips, "SortedFile", trusting)
    content = [case for case in range(2000) if is_content(case)]
    found = 0
    for case in content:
        try:
            bit_flips.attempt(case)
        except WrongAnswer:
            found += 1
    assert found > len(content) // 2


def differs_by_a_bit(one: bytes, other: bytes) -> bool:
    """True if two files of equal size differ in exactly one bit."""
    return len(one) == len(other) and (int.from_bytes(one) ^ int.from_bytes(other)).bit_count() == 1


def is_content(case: int) -> bool:
    """True if a case flips a bit of a small sorted file, outside its footer."""
    at = case * bit_flips.STEP % bit_flips.STARTS[-1]
    number = max(place for place, start in enumerate(bit_flips.STARTS) if start <= at)
    return number < len(BASES) and (at - bit_flips.STARTS[number]) // 8 < len(BASES[number].image) - FOOTER_BYTES


def test_a_reader_that_trusts_documents_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that accepts any checksum reads a wrong document."""
    monkeypatch.setattr(document.zlib, "crc32", lambda _: 0)
    flipped = bytearray(document.encode("ACTIVE", bit_flips.DOCUMENTS["ACTIVE"]))
    flipped[-4] ^= 1
    with pytest.raises(WrongAnswer, match="read as"):
        bit_flips.read_document("ACTIVE", random.Random(0), bytes(flipped))
