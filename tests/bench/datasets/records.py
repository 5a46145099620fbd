"""Records that can be told right from wrong without being kept, and source files of them.

A key is its number times an odd constant modulo 2^64, in hexadecimal: numbers in order give keys in none, no two are
equal, and the number is found again by the constant's inverse.  A value is made from its key.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from gossipkv.keyspace.partitioner import partition
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sequence_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

    # Which file a record goes to.
    Chooser = Callable[[int, bytes], int]

KEY_BYTES = 16
RANGE = 1 << 64
FACTOR = 0x9E3779B97F4A7C15
INVERSE = pow(FACTOR, -1, RANGE)
# As Hadoop's writer, which begins a new block when this much has been put into one.
BLOCK_BYTES = 1_000_000


def key_of(number: int) -> bytes:
    """The key of that number."""
    return b"%016x" % (number * FACTOR % RANGE)


def value_of(key: bytes, value_bytes: int) -> bytes:
    """What a key's value is."""
    return (key * (value_bytes // KEY_BYTES + 1))[:value_bytes]


def numbered(count: int, value_bytes: int) -> Iterator[Record]:
    """So many records, in no order."""
    for number in range(count):
        key = key_of(number)
        yield key, value_of(key, value_bytes)


def by_hash(files: int) -> Chooser:
    """As Hadoop's partitioner writes Text keys."""
    return lambda _, key: partition("text", key, files)


def in_turn(files: int) -> Chooser:
    """By no function of the key."""
    return lambda number, _: number % files


def write_tab_separated(directory: Path, records: Iterable[Record], files: int, choose: Chooser) -> list[bytes]:
    """One version; returns the first key of each file."""
    directory.mkdir(parents=True)
    first: list[bytes] = [b""] * files
    with ExitStack() as stack:
        outputs = [
            stack.enter_context((directory / f"part-{number:05}").open("wb", buffering=1 << 20))
            for number in range(files)
        ]
        for number, (key, value) in enumerate(records):
            place = choose(number, key)
            outputs[place].write(b"%b\t%b\n" % (key, value))
            first[place] = first[place] or key
    return first


def write_sequence_files(directory: Path, records: list[Record], files: int) -> list[Path]:
    """One version of block-compressed SequenceFiles by the hash of Text keys, as Spark writes them by default."""
    directory.mkdir(parents=True)
    parts: list[list[Record]] = [[] for _ in range(files)]
    for key, value in records:
        parts[partition("text", key, files)].append((key, value))
    key, value = records[0]
    kind = sequence_file.Kind(block_records=max(1, BLOCK_BYTES // (len(key) + len(value) + 4)))
    paths = [directory / f"part-{number:05}" for number in range(files)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(sequence_file.write(part, kind))
    return paths


def check_numbered(built: Path, count: int, value_bytes: int) -> None:
    """Every sorted file in order, every record right, all there: then none is missing and none is twice."""
    seen = 0
    for path in sorted(built.glob("*.gkv")):
        with SortedFile(path) as file:
            previous = b""
            for key, value in file.scan():
                right = int(key, KEY_BYTES) * INVERSE % RANGE < count and value == value_of(key, value_bytes)
                if not right or key <= previous:
                    raise RuntimeError(f"{path}: a wrong record: {key!r}")
                previous = key
                seen += 1
    if seen != count:
        raise RuntimeError(f"{built}: {seen:,} records instead of {count:,}")


def check_all(built: Path, records: list[Record]) -> None:
    """Every record is found in the sorted file that its key belongs to, and there are no others."""
    paths = sorted(built.glob("*.gkv"))
    with ExitStack() as stack:
        files = [stack.enter_context(SortedFile(path)) for path in paths]
        for key, value in records:
            if files[partition("text", key, len(files))].get(key) != value:
                raise RuntimeError(f"{built}: a wrong value of {key!r}")
        if sum(map(len, files)) != len(records):
            raise RuntimeError(f"{built}: not as many records as there should be")
