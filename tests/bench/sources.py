"""Source files as a user's job would leave them, and checks of the files built from them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gossipkv.keyspace.partitioner import partition
from gossipkv.storage.sorted_file import SortedFile
from tests.bench.data import number_of, value_of
from tests.bench.measurement import WrongAnswerError
from tests.oracle import sequence_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.bench.data import Record

    # The file of a record, by its number and key.
    Chooser = Callable[[int, bytes], int]

VERSION = "1"
FILES = 4
# Hadoop's writer begins a new block after so many bytes.
BLOCK_BYTES = 1_000_000


def by_hash(files: int) -> Chooser:
    return lambda _, key: partition("text", key, files)


def in_turn(files: int) -> Chooser:
    return lambda number, _: number % files


def write_text(directory: Path, records: Iterable[Record], files: int, choose: Chooser) -> list[bytes]:
    """Write tab-separated files in a new directory; return the first key of each."""
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


def write_database(
    root: Path, name: str, records: Iterable[Record], files: int = FILES, choose: Chooser | None = None
) -> list[bytes]:
    """Publish the first version of a database by one rename; return the first key of each file."""
    staging = root.parent / f"{root.name}-staging"
    first = write_text(staging / VERSION, records, files, choose or in_turn(files))
    root.mkdir(parents=True, exist_ok=True)
    staging.rename(root / name)
    return first


class Versions:
    """Databases whose versions all have the same records, are staged, and appear by one rename."""

    def __init__(self, directory: Path, names: list[str], records: list[Record], files: int = FILES) -> None:
        self.names = names
        self.source = directory / "source"
        self._aside = directory / "aside"
        self._records = records
        self._files = files
        self._count = 0

    def write(self) -> str:
        """Stage the next version of each database outside the source."""
        self._count += 1
        version = f"{self._count:04}"
        for name in self.names:
            write_text(self._aside / version / name, self._records, self._files, by_hash(self._files))
        os.sync()
        return version

    def show(self, name: str, version: str) -> None:
        (self.source / name).mkdir(parents=True, exist_ok=True)
        (self._aside / version / name).rename(self.source / name / version)

    def show_first(self) -> str:
        """Write and publish the first version of each database."""
        version = self.write()
        for name in self.names:
            self.show(name, version)
        return version


def write_sequence_files(directory: Path, records: list[Record], files: int) -> list[Path]:
    """Write a version of block-compressed SequenceFiles by the hash of Text keys, as Spark does by default."""
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


def check_numbered(built: Path, count: int, value_of: Callable[[bytes], bytes] = value_of) -> None:
    """Check that the sorted files have every record exactly once, in order."""
    seen = 0
    for path in sorted(built.glob("*.gkv")):
        with SortedFile(path) as file:
            previous = b""
            for key, value in file.scan():
                if number_of(key) >= count or value != value_of(key) or key <= previous:
                    raise WrongAnswerError(f"{path}: a wrong record: {key!r}")
                previous = key
                seen += 1
    if seen != count:
        raise WrongAnswerError(f"{built}: {seen:,} records instead of {count:,}")


def check_all(built: Path, records: list[Record]) -> None:
    """Check that every record is in the sorted file of its key, and that there are no others."""
    with ExitStack() as stack:
        files = [stack.enter_context(SortedFile(path)) for path in sorted(built.glob("*.gkv"))]
        for key, value in records:
            if files[partition("text", key, len(files))].get(key) != value:
                raise WrongAnswerError(f"{built}: a wrong value of {key!r}")
        if sum(map(len, files)) != len(records):
            raise WrongAnswerError(f"{built}: not as many records as there should be")
