"""Build more than fits in memory, then print the greatest resident size of this process in bytes.

A process of its own, because `VmHWM` never sinks: `python -m tests.bench.memory_child FILE BUDGET TOTAL VALUE_BYTES`.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.storage.builder import build

from tests.bench.data import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Record

KIB = 1 << 10


def records(total_bytes: int, value_bytes: int) -> Iterator[Record]:
    """Unsorted records made one at a time, so that nothing but the builder holds any."""
    rng = random.Random(SEED)
    made = 0
    while made < total_bytes:
        key = b"%016x" % rng.getrandbits(64)
        yield key, (key * (value_bytes // len(key) + 1))[:value_bytes]
        made += len(key) + value_bytes


def peak_bytes() -> int:
    """`VmHWM` of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * KIB
    raise LookupError("/proc/self/status has no VmHWM")


def main() -> None:
    """Arguments as in the module's head."""
    path, budget_bytes, total_bytes, value_bytes = sys.argv[1:]
    build(Path(path), records(int(total_bytes), int(value_bytes)), memory_bytes=int(budget_bytes))
    print(peak_bytes())


if __name__ == "__main__":
    main()
