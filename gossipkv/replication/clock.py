"""How far a copy has come, origin by origin: packed clocks; what one is stands in `_vector_clock.pyx`.

A clock is `bytes`, and a value: what changes one returns another.
"""

from __future__ import annotations

from gossipkv.replication._vector_clock import (
    AFTER,
    BEFORE,
    CONCURRENT,
    EQUAL,
    ahead,
    check,
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
