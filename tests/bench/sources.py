"""Source files as a user's job would leave them: tab-separated, larger than memory where that is the point."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

VERSION = "1"
FILES = 4


def write_database(root: Path, name: str, records: Iterable[Record]) -> None:
    """One version of tab-separated files, put in place by one rename."""
    staging = root.parent / f"{root.name}-staging"
    version = staging / VERSION
    version.mkdir(parents=True)
    with ExitStack() as stack:
        outputs = [stack.enter_context((version / f"part-{number:05}").open("wb")) for number in range(FILES)]
        for number, (key, value) in enumerate(records):
            outputs[number % FILES].write(b"%b\t%b\n" % (key, value))
    staging.rename(root / name)


def bulk(total_bytes: int, value_bytes: int, seed: str) -> Iterator[Record]:
    """Unsorted records made one at a time, until there are enough of them."""
    rng = random.Random(seed)
    made_bytes = 0
    while made_bytes < total_bytes:
        key = b"%016x" % rng.getrandbits(64)
        yield key, (key * (value_bytes // len(key) + 1))[:value_bytes]
        made_bytes += len(key) + value_bytes
