"""Mutated sorted files as a source, in a separate process that may crash; a number fixes each case.

    python -m tests.nightly.fuzz.sorted_source_mutations FIRST COUNT [PLACE]

The files are those of `sorted_file_mutations`. A plainly damaged file yields the written records in order, and then
ends or raises an error. An insane file with matching checksums may yield anything that a sorted file can hold, or an
error; but crashes, other errors and endless loops are failures.
"""

from __future__ import annotations

import random
import sys

from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, MAX_VALUE_BYTES, FileReading
from gossipkv.dataset.formats.sorted_files import Placement, batches
from gossipkv.errors import Corrupt, SourceError, UnsupportedFormat
from tests.nightly.fuzz.sorted_file_mutations import BASES, SEED, main, mutate_plainly, mutate_with_new_checksums
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.formats.cut_reader import CutReader
from tests.unit.storage.examination import WrongAnswer

RECORDS = [oracle.File(base.image).items() for base in BASES]


def read(image: bytes) -> tuple[list[oracle.Record], bool]:
    """Return the records, and True if the file was read to its end."""
    found: list[oracle.Record] = []
    placement = Placement(0, 0, 1)
    try:
        for batch in batches(CutReader(image, name="mutated.gkv"), FileReading()):
            assert 0 <= placement.first_wrong(batch) <= len(batch)
            found += list(batch)
    except (Corrupt, UnsupportedFormat):
        return found, False
    except SourceError as error:
        raise WrongAnswer(f"the limits are those of the file: {error}") from error
    return found, True


def attempt(case: int) -> str:
    draw = random.Random(SEED * 2**32 + case)
    base, records = BASES[case % len(BASES)], RECORDS[case % len(BASES)]
    exact = draw.random() < 0.3
    image = mutate_plainly(draw, base.image) if exact else mutate_with_new_checksums(draw, base)
    found, whole = read(image)
    if exact and found != (records if whole else records[: len(found)]):
        raise WrongAnswer(f"expected {records!r:.300}, got {found!r:.300}")
    if any(len(key) > MAX_KEY_BYTES or len(value) > MAX_VALUE_BYTES for key, value in found):
        raise WrongAnswer("a record over the limits")
    return f"{'plain' if exact else 'resealed'}: {'answered' if whole else 'met' if found else 'refused'}"


if __name__ == "__main__":
    main(attempt, int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4])
