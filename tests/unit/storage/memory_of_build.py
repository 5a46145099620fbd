"""Measure the memory of one build, in a process of its own.

    python -m tests.unit.storage.memory_of_build DIRECTORY BUDGET_BYTES RECORDS VALUE_BYTES COMPRESSION FILES

The program adds RECORDS records and prints the peak of the resident memory before and after, in bytes.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.storage.builder import SortedFileBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

NOISE_BYTES = 1 << 20


def peak_bytes() -> int:
    """Return the peak of the resident memory so far (VmHWM)."""
    (kibibytes,) = re.findall(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) * 1024


def records(count: int, value_bytes: int, noise: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield unordered records with distinct values, without holding them."""
    doubled = noise * (value_bytes // len(noise) + 2)
    for number in range(count):
        key = number * 1_000_000_007 % count  # Each key once, out of order.
        at = number * 7919 % len(noise)
        yield b"%016d" % key, doubled[at : at + value_bytes]


def main(directory: str, budget: int, count: int, value_bytes: int, *, compression: str, files: int) -> None:
    noise = random.Random(34).randbytes(NOISE_BYTES)
    made = records(count, value_bytes, noise)
    next(made)  # From here on the generator holds its own noise.
    names = [f"{number}.gkv" for number in range(files)]
    before = peak_bytes()
    with SortedFileBuilder(directory, names, memory_bytes=budget, compression=compression) as building:
        for group in range(files - 1):
            building.add(b"alone", b"", group)
        building.add_all(made, files - 1)
        reports = building.finish()
    after = peak_bytes()
    sizes = sum(report.size_bytes for report in reports)
    sys.stdout.write(
        json.dumps({"before": before, "after": after, "size_bytes": sizes, "records": reports[-1].records})
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), compression=sys.argv[5], files=int(sys.argv[6]))
