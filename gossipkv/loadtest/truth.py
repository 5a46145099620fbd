"""The truth of a load test: keys and values from files, read as a node reads its source.

A directory is a source root, a database in one, or one version; each version is compared with its own files.  A file
may be of any format that a node reads, usually tab-separated text.  The last record of a key counts, as in a node.

A file of keys has one key a line, and gives the requested keys in order.  Keys without a truth have unknown values, so
any value is accepted for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from gossipkv.dataset.formats.detect import batches, detect_file
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.environment import small_file
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError, SourceError
from gossipkv.loadtest._loadtest import Records, shuffled
from gossipkv.loadtest.plan import PlanError
from gossipkv.processes import leash, niceness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import EllipsisType

    from gossipkv.loadtest.plan import LoadPlan, TruthFile

Expected: TypeAlias = "bytes | EllipsisType | None"

MAX_VERSIONS: Final = 64  # The extension holds values of this many versions.
NEWEST_VERSIONS: Final = 60  # Versions read from a source: some more may come during the load.
KEYS: Final = small_file.Kind("list of keys", 1 << 30, is_private=False)  # The file has one key a line.
ABSENT_KEYS: Final = 65_536  # A cache of pages does not hold this many for long.
KEYS_APART: Final = 0x9E3779B97F4A7C15  # It is odd, so that products differ.
MIN_INSERTS: Final = 100_000
ABSENT_MARK: Final = b"~absent~"


@dataclass(frozen=True)
class Truth:
    """Keys, their values in each version, and the requested keys.

    `is_whole`: the values are complete, so a scan must have no other records.  Keys from `present` on are certain to be
    absent.  `population` lists the numbers of requested keys, in order; None: all that are present.
    """

    keys: list[bytes]
    values: dict[str | None, list[Expected]]
    present: int
    population: list[int] | None
    is_whole: bool

    def records(self, *, ordered: bool) -> Records:
        """Return the records for the extension; `ordered`: scans are compared as well."""
        return Records(self.keys, self.values, present=self.present, ordered=ordered, whole=self.is_whole)


def read_truth(plan: LoadPlan) -> Truth:
    """Read the truth of a plan.

    Raises:
        PlanError: it is empty, or cannot be understood.
        SourceError: a file is not of its format.
        StorageError: a file cannot be read.
    """
    tables: dict[str | None, dict[bytes, bytes]] = {}
    is_whole = bool(plan.truth)
    for given in plan.truth:
        place = Path(given.path)
        if not place.exists():
            raise PlanError(
                f"{given.path}: the truth does not exist; name a file of key TAB value, or a source directory"
            )
        is_whole = is_whole and place.is_dir()
        tables.update(_tables(given, place, plan.database))
    if len(tables) > MAX_VERSIONS:
        raise PlanError(
            f"the truth has {len(tables)} versions, and a load test compares at most {MAX_VERSIONS}; give fewer"
        )
    numbers: dict[bytes, int] = {}
    for table in tables.values():
        for key in table:
            numbers.setdefault(key, len(numbers))
    if plan.truth and not numbers:
        raise PlanError(f"{plan.truth[0].path}: the truth has no record, so there is no key to read")
    truth_count = len(numbers)
    population = None if plan.keys is None else _population(plan.keys, numbers)
    keys = list(numbers)
    # Keys only in the keys' file are absent if the truth is complete, else unknown.
    beside: list[Expected] = [None if is_whole else ...] * (len(keys) - truth_count)
    values: dict[str | None, list[Expected]] = {
        version: [*map(table.get, keys[:truth_count]), *beside] for version, table in tables.items()
    }
    if not values:
        values = {None: [...] * len(keys)}
    present = len(keys)
    if plan.misses > 0:
        keys += _absent_keys(keys, plan.seed)
        for column in values.values():
            column.extend([None] * (len(keys) - present))
    return Truth(keys, values, present, population, is_whole)


def key_of(number: int) -> bytes:
    """Return the key of a record of a table: as YCSB's, with no order among neighbours, but each only once."""
    return b"user%019d" % (number * KEYS_APART % (1 << 63))


def made_records(plan: LoadPlan) -> Truth:
    """Return the records of a table, and room for new ones; behind those the first ones are written again."""
    new = max(plan.records, MIN_INSERTS) if plan.mix.get("insert", 0) else 0
    keys = [key_of(number) for number in range(plan.records + new)]
    return Truth(keys, {None: [...] * len(keys)}, plan.records, None, is_whole=False)


def _tables(given: TruthFile, place: Path, database: str) -> Iterator[tuple[str | None, dict[bytes, bytes]]]:
    """Yield the versions at a place, with their records."""
    if place.is_file():
        status = place.stat()
        alone = SourceFile(place.name, str(place), status.st_size, status.st_mtime_ns)
        yield given.version, _records([alone])
        return
    found = _database_at(place, database)
    if found is None:
        source = SourceRoot(place, RealFiles())
        version = given.version or (place.absolute().name if place.absolute().parent.name == database else None)
        yield version, _records(source.listed(source.root, "", "").files)
        return
    if given.version is not None:
        raise PlanError(f"{given.path}: the directory has several versions; name one of them with {given.path}/VERSION")
    source, name = found
    for version in source.versions(name).names[-NEWEST_VERSIONS:]:
        yield version, _records(source.version(name, version).files)


def _database_at(place: Path, database: str) -> tuple[SourceRoot, str] | None:
    """Return the source and the database of a directory; None if it is one version."""
    if database and (place / database).is_dir():
        return SourceRoot(place, RealFiles()), database
    if any(entry.is_dir() and not entry.name.startswith(("_", ".")) for entry in place.iterdir()):
        return SourceRoot(place.absolute().parent, RealFiles()), place.absolute().name
    return None


def place_of_versions(plan: LoadPlan) -> str | None:
    """Return the first directory of the truth in which versions may appear during the load."""
    for given in plan.truth:
        place = Path(given.path)
        if place.is_dir() and _database_at(place, plan.database) is not None:
            return given.path
    return None


def read_version(path: str, database: str, version: str) -> Mapping[bytes, bytes]:
    """Read the records of a version that has appeared in such a directory.

    Raises:
        PlanError: it is not there.
        SourceError: a file is not of its format.
        StorageError: a file cannot be read.
    """
    found = _database_at(Path(path), database)
    if found is None or version not in found[0].versions(found[1]).names:
        raise PlanError(f"{path} has no version {version}")
    source, name = found
    return _records(source.version(name, version).files)


def _records(listed: Iterable[SourceFile]) -> dict[bytes, bytes]:
    """Read the records of one version's files, in the order of their names; the last of a key counts."""
    files = RealFiles()
    found: dict[bytes, bytes] = {}
    form: tuple[str, str] | None = None
    for file in sorted(listed, key=lambda file: file.name.encode()):
        with SourceReader(files, file) as reader:
            here = detect_file(reader, FileReading())
            if here is None:
                continue
            if form is not None and form[0] != here:
                raise SourceError(
                    f"{file.path}: the file looks like {here}, and {form[1]} like {form[0]}; "
                    "all files of a version must have one format",
                    {"file": file.path, "expected": form[0], "got": here},
                )
            form = (here, file.path)
            with contextlib.closing(batches(here, reader, FileReading())) as parts:
                for batch in parts:
                    found.update(iter(batch))  # A batch has `keys`, but is no mapping.
    return found


def _population(path: str, numbers: dict[bytes, int]) -> list[int]:
    """Return the numbers of a file's keys, one a line; keys outside the truth get new numbers."""
    lines = small_file.read(Path(path), KEYS).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise PlanError(f"{path}: the file has no key; write one key per line")
    return [numbers.setdefault(line, len(numbers)) for line in lines]


def _absent_keys(keys: list[bytes], seed: int) -> list[bytes]:
    """Return absent keys similar to the present ones; the same seed gives the same keys.

    Each is a present key followed by a mark and a number, so that it sorts between present keys.
    """
    present = set(keys)
    found = []
    for number, at in enumerate(shuffled(range(min(len(keys), ABSENT_KEYS)), seed)):
        key = keys[at] + ABSENT_MARK + b"%x" % number
        while key in present:
            key += b"~"
        found.append(key)
    return found


SIZES: Final = struct.Struct("=II")


def write_records(records: Mapping[bytes, bytes], file: BinaryIO) -> None:
    """Write records in key order: two numbers of 32 bits, the sizes, then the key and the value."""
    for key in sorted(records):
        value = records[key]
        file.write(SIZES.pack(len(key), len(value)) + key + value)


def main() -> None:
    """Read one version of a source and write its records, as the process that `late_truth` starts.

    Standard input has a line of JSON with the version's place and the file to write.  Standard output gets `{"records":
    n}`, or `{"error": "..."}`.  Only processes on this machine, of this program, read the file.
    """
    order = json.loads(sys.stdin.buffer.readline())
    leash.wear(order["worn"])
    niceness.give_way(os.getpid())  # The load has priority.
    answer: dict[str, str | int]
    try:
        records = read_version(order["place"], order["database"], order["version"])
        with Path(order["file"]).open("xb") as file:
            write_records(records, file)
    except (GossipKVError, OSError) as error:
        answer = {"error": str(error)}
    else:
        answer = {"records": len(records)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
