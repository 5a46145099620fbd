"""How far a copy has come, origin by origin: packed clocks; what one is stands in `vector_clock.pyx`.

A clock is `bytes`, and a value: what changes one returns another.
"""

from __future__ import annotations

from gossipkv.replication._replication import (
    AFTER,
    BEFORE,
    CONCURRENT,
    EQUAL,
    ahead,
    compare,
    counter,
    covers,
    entries,
    least,
    merge,
    named,
    of,
    raised,
)
from gossipkv.replication._replication import (
    check_clock as check,
)

__all__ = [
    "AFTER",
    "BEFORE",
    "CONCURRENT",
    "EQUAL",
    "ahead",
    "check",
    "compare",
    "counter",
    "covers",
    "entries",
    "least",
    "merge",
    "named",
    "of",
    "raised",
]
