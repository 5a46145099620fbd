"""Layers of records, as memtables and as runs."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gossipkv.storage.engine._engine import Memtable
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file
from tests.oracle.memtable import TOMBSTONE, VALUE, encode, internal
from tests.unit.storage.records import KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPACES = (0, 1, 2, 0xFFFFFFFF)

# Few different keys, so that layers share keys, most of all in space 1.
NAMES = st.one_of(st.binary(max_size=1), st.sampled_from([b"a", b"ab", b"a\0", b"b", b"\xff", b"\xff\xff"]), KEYS)
LAYERS = st.dictionaries(
    st.tuples(st.sampled_from(SPACES) | st.just(1), NAMES).map(lambda pair: internal(*pair)),
    st.one_of(st.just(bytes([TOMBSTONE])), st.binary(max_size=12).map(lambda value: bytes([VALUE]) + value)),
    max_size=25,
)
BOUNDS = st.none() | NAMES


def memtable_of(layer: Mapping[bytes, bytes]) -> Memtable:
    """Return a memtable with these records, put in random order, each over another value."""
    memtable = Memtable(1 << 16)
    operations = [(value[0], int.from_bytes(key[:4], "big"), key[4:], value[1:]) for key, value in layer.items()]
    random.Random(len(operations)).shuffle(operations)
    memtable.apply(encode((VALUE, space, key, b"replaced") for _, space, key, _ in operations))
    memtable.apply(encode(operations))
    return memtable


def run_of(
    layer: Mapping[bytes, bytes], cuts: Sequence[int] = (), compression: int = sorted_file.NONE
) -> list[tuple[bytes, SortedFile]]:
    """Return a run with these records, in files that begin at the given places."""
    records = sorted(layer.items())
    ends = sorted({0, *(cut % len(records) for cut in cuts), len(records)})
    return [
        (
            records[begin][0],
            SortedFile(sorted_file.write(records[begin:end], compression=compression), name=f"{begin}.gkv"),
        )
        for begin, end in pairwise(ends)
    ]
