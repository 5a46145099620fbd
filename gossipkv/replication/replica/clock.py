"""Packed vector clocks: a replica's progress for each origin; the form is in `vector_clock.pyx`.

A clock is an immutable `bytes` value: operations return a new one.
"""

from __future__ import annotations

from gossipkv.replication._replication import (
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
from gossipkv.replication._replication import check_clock as check

__all__ = [
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
