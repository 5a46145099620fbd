"""Single flipped bits in sorted files and documents, in a process that may die of one: each follows from its number.

    python -m tests.nightly.fuzz.bit_flips FIRST COUNT [PLACE]

The bits of all files together are tried in an order that comes to each of them once before it comes to any again.
Whatever is read of a file is what was written, or an error; and checking the whole file finds the flip.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.address import Address
from gossipkv.dataset.local import active, manifest
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.ownership import Owner, Ownership
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.storage import document
from gossipkv.storage.sorted_file import SortedFile
from tests.nightly.fuzz.sorted_file_mutations import BASES, NAME, SEED, Base, main, met
from tests.oracle import sorted_file as oracle
from tests.unit.storage.examination import WrongAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = tuple(
    manifest.PartitionFile(f"{number:05d}.gkv", number, 0, 4096 + number, number * 7919) for number in range(3)
)
IDENTITY = VersionIdentity("db", "v1", "d" * 64, 3, "sequins", regrouped=False)
ACTIVE = active.ActiveDocument(
    "v1", "v2", IDENTITY, (Ownership(Owner("n1", bytes(16), Address("a", 1)), PartitionSet.of(3, [0, 2])),)
)
DOCUMENTS = {
    "MANIFEST": manifest.to_body(manifest.VersionManifest(IDENTITY, 3, 9, "none", FILES)),
    "ACTIVE": active.to_body("db", ACTIVE),
    "REFUTED": {"database": "db", "refuted": [["d" * 64, ["sequins", "text"]]]},
    "NODE": {"cluster": "c", "node": "n1", "uuid": "0" * 32, "epoch": 7},
}
STEP = 1_000_003  # A prime that divides no number of bits here.


class Paged:
    """A file of many pages, and a question for each record: most of them do not meet the page with the flip."""

    def __init__(self, compression: str) -> None:
        self.image = (GOLDEN / f"several-{compression}.gkv").read_bytes()
        self.questions: list[tuple[Callable[[SortedFile], object], object]] = [
            (partial(ask_for, key), value) for key, value in oracle.File(self.image).items()
        ]


def ask_for(key: bytes, file: SortedFile) -> bytes | None:
    return file.get(key)


def read_sorted(base: Base | Paged, draw: random.Random, image: bytes) -> str:
    """Ask a file with one wrong bit something, then check it whole."""
    try:
        file = SortedFile(image, name=NAME)
    except (Corrupt, UnsupportedFormat):
        return "refused"
    ask, expected = draw.choice(base.questions)
    found = met(file, ask, expected, exact=True)
    if not met(file, lambda file: file.verify(), None, exact=True):
        raise WrongAnswer("the flip is not found")
    return "met" if found else "answered"


def read_document(kind: str, draw: random.Random, image: bytes) -> str:
    """Read a document with one wrong bit; any body would be a wrong one."""
    try:
        body = document.decode(image, "file", kind)
    except (Corrupt, UnsupportedFormat):
        return "refused"
    raise WrongAnswer(f"read as {body}")


# What it is called, the bytes, and how they are read.
FLIPPED: list[tuple[str, bytes, Callable[[random.Random, bytes], str]]] = [
    *(("sorted", base.image, partial(read_sorted, base)) for base in (*BASES, Paged("none"), Paged("lz4"))),
    *(("document", document.encode(kind, body), partial(read_document, kind)) for kind, body in DOCUMENTS.items()),
]
STARTS = [0, *accumulate(8 * len(image) for _, image, _ in FLIPPED)]
assert STARTS[-1] % STEP != 0


def attempt(case: int) -> str:
    at = case * STEP % STARTS[-1]
    for (kind, image, read), (start, end) in zip(FLIPPED, pairwise(STARTS), strict=True):
        if at < end:
            flipped = bytearray(image)
            flipped[(at - start) // 8] ^= 1 << (at - start) % 8
            return f"{kind}: {read(random.Random(SEED * 2**32 + case), bytes(flipped))}"
    raise AssertionError(at)


if __name__ == "__main__":
    main(attempt, int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
