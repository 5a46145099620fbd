"""Footers with odd numbers, in a process that may die of them; each is printed before it is tried.

Run `python tests/unit/storage/insane_footers.py` from the root; the last line of a complete run counts outcomes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING

from gossipkv.errors import Corrupt
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = [(b"key %03d" % number, b"value %d " % number * 9) for number in range(120)]
WORDS = [field.name for field in dataclasses.fields(oracle.Footer)][2:18]  # The words after the sizes that `seal` sets.
TURNS = [0, 1, 8, 63, 64, 4096, 2**31, 2**32, 2**35, 2**61, 2**62, 2**63]
PAIRS = 2500


def odd_numbers(footer: oracle.Footer) -> list[int]:
    """Return numbers at which arithmetic on the footer's words overflows, and their neighbours."""
    own = [getattr(footer, name) for name in WORDS]
    numbers = {turn + delta for turn in (*TURNS, *own) for delta in (-64, -8, -1, 0, 1, 8, 64)}
    numbers |= {-number for number in numbers} | {2**64 // 64 + 1, 2**64 // 12 + 1, 2**64 // 8 + 1}
    return sorted(number % 2**64 for number in numbers)


def changes(footer: oracle.Footer) -> Iterator[dict[str, int]]:
    """Yield each word with each number, then pairs and triples of words with random numbers."""
    numbers = odd_numbers(footer)
    for name in WORDS:
        for number in numbers:
            yield {name: number}
    source = random.Random(33)
    for _ in range(PAIRS):
        yield {name: source.choice(numbers) for name in source.sample(WORDS, source.choice([2, 3]))}
    # Regions that begin before 2^64 and end after 0, so that each sum looks valid.
    for back in (8, 64, 128, 4096, 2**20):
        yield {"index": 2**64 - back, "buckets": max(1, back // 64), "homes": 1}
        yield {"anchors": 2**64 - back, "anchor_count": -(-back // 12), "block_table": 8}
        yield {"block_table": 2**64 - back, "blocks": back // 8}
        yield {"metadata": 2**64 - back, "metadata_bytes": back + 8}


def ask_everything(file: SortedFile) -> None:
    """Ask every question; any answer will do, and so will `Corrupt`."""
    questions = [
        lambda: [file.get(key) for key, _ in RECORDS],
        lambda: file.get_many([key for key, _ in RECORDS]),
        lambda: file.get(b"missing"),
        lambda: list(file.scan(limit=200)),
        lambda: list(file.scan(limit=200, reverse=True)),
        lambda: list(file.scan(start=b"key 05", end=b"key 07", reverse=True, limit=200)),
        lambda: list(file.scan(prefix=b"key 1", limit=200)),
        lambda: file.metadata,
        file.describe,
        file.verify,
    ]
    for question in questions:
        with contextlib.suppress(Corrupt):
            question()


def main() -> None:
    counts: Counter[str] = Counter()
    for compression in (oracle.NONE, oracle.LZ4):
        image = oracle.write(RECORDS, compression=compression, metadata=b"metadata")
        footer = oracle.Footer.unpack(image[-256:])
        for change in changes(footer):
            sys.stdout.write(f"{compression} {change}\n")
            sys.stdout.flush()
            forged = image[:-256] + dataclasses.replace(footer, **change).pack()
            try:
                file = SortedFile(forged, name="insane.gkv")
            except Corrupt:
                counts["refused"] += 1
            else:
                counts["opened"] += 1
                ask_everything(file)
    sys.stdout.write(f"{counts['refused']} {counts['opened']}\n")


if __name__ == "__main__":
    main()
