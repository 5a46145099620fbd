"""Single flipped bits in sorted files and documents, in a separate process that may crash; a number fixes each case.

    python -m tests.nightly.fuzz.bit_flips FIRST COUNT [PLACE]

The order of the cases visits each bit of all files once before it repeats. Every read must return the written content
or an error, and the check of the whole file must find the flip.
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
STEP = 1_000_003  # A prime that does not divide the number of bits.


class Paged:
    """A file of many pages with a question per record: most questions miss the page with the flip."""

    def __init__(self, compression: str) -> None:
        self.image = (GOLDEN / f"several-{compression}.gkv").read_bytes()
        self.questions: list[tuple[Callable[[SortedFile], object], object]] = [
            (partial(ask_for, key), value) for key, value in oracle.File(self.image).items()
        ]


def ask_for(key: bytes, file: SortedFile) -> bytes | None:
    return file.get(key)


def read_sorted(base: Base | Paged, draw: random.Random, image: bytes) -> str:
    """Ask one question of a file with a wrong bit, then verify the whole file."""
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
    """Read a document with a wrong bit, which must be refused: any body would be wrong."""
    try:
        body = document.decode(image, "file", kind)
    except (Corrupt, UnsupportedFormat):
        return "refused"
    raise WrongAnswer(f"read as {body}")


# The kind, the bytes, and the function that reads them.
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
