"""Sample records for storage, and short ways to build a real file of them in memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gossipkv.storage import builder
from tests.unit.storage.memory_files import MemoryFiles
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Iterable

Record = tuple[bytes, bytes]

COMPRESSIONS = ("none", "lz4")
MIN_BUDGET = builder.MIN_MEMORY_BYTES

# Sizes at the limits of varints, words, pages and blocks.
EDGE_VALUE_BYTES = (
    0,
    1,
    127,
    128,
    4079,
    4080,
    4081,
    4087,
    4088,
    4089,
    4095,
    4096,
    4097,
    8183,
    8184,
    8192,
    16383,
    16384,
)
EDGE_KEY_BYTES = (
    0,
    1,
    3,
    4,
    7,
    8,
    9,
    15,
    16,
    17,
    24,
    63,
    64,
    65,
    72,
    73,
    127,
    128,
    129,
    4090,
    4096,
    4100,
    16383,
    16384,
)


def built(records: Iterable[Record], *, compression: str = "none", **options: object) -> bytes:
    """Return the builder's file of these records."""
    files = MemoryFiles()
    build("directory/a.gkv", records, files=files, compression=compression, **options)
    assert list(files.named) == ["directory/a.gkv"]
    assert not files.opened
    return bytes(files.named["directory/a.gkv"])


def value(source: random.Random, most: int) -> bytes:
    """Return a value of up to `most` bytes; half of the values are compressible."""
    size = source.randrange(most + 1)
    return source.randbytes(size) if source.random() < 0.5 else (source.randbytes(5) * (size // 5 + 1))[:size]


def many(seed: int, count: int, *, keys: int | None = None, value_bytes: int = 60) -> list[Record]:
    """Return `count` unordered records, over at most `keys` different keys."""
    source = random.Random(seed)
    keys = 2 * count if keys is None else keys
    return [(b"user:%06d" % source.randrange(keys), value(source, value_bytes)) for _ in range(count)]


def edge_cases() -> list[Record]:
    """Return keys and values of every size at a limit, and keys that are prefixes of each other."""
    source = random.Random(20)
    shared = b"p" * 70  # Longer than the prefix in a footer.
    records = [(b"value %05d" % size, source.randbytes(size)) for size in EDGE_VALUE_BYTES]
    records += [(b"zeros %05d" % size, bytes(size)) for size in EDGE_VALUE_BYTES]
    records += [(source.randbytes(size), b"key of %d" % size) for size in EDGE_KEY_BYTES]
    records += [(b"k" * size, b"prefix of %d" % size) for size in EDGE_KEY_BYTES]
    records += [(b"z" + bytes(size), b"zeros behind %d" % size) for size in range(40)]
    records += [(bytes(size), b"zeros %d" % size) for size in range(40)]
    records += [(b"\xff" * size, b"highest %d" % size) for size in range(1, 20)]
    records += [(shared + b"%03d" % number, b"shared") for number in range(100)]
    records += [(f"Größe 日本 𝄞 {number}".encode(), "né".encode()) for number in range(9)]
    source.shuffle(records)
    return records


def misses(records: Iterable[Record]) -> list[bytes]:
    """Return absent keys that are near those of the records."""
    keys = {key for key, _ in records}
    near = {b"", b"\0", b"\xff" * 9, b"k" * 70_000}
    for key in keys:
        near |= {key + b"\0", key[:-1], key[:-1] + b"\xff", key + b"x" * 8, key[1:]}
    return sorted(near - keys)


# Short alphabets collide often: duplicates, prefixes, zeros after zeros.
KEYS = st.one_of(
    st.binary(max_size=3),
    st.lists(st.sampled_from([b"\0", b"a", b"\xff"]), max_size=24).map(b"".join),
    st.binary(max_size=40),
    st.tuples(st.just(b"q" * 66), st.binary(max_size=12)).map(b"".join),
)
VALUES = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.sampled_from([*EDGE_VALUE_BYTES]), st.binary(min_size=1, max_size=3)).map(
        lambda pair: (pair[1] * pair[0])[: pair[0]]
    ),
)
RECORDS = st.lists(st.tuples(KEYS, VALUES), max_size=60)
