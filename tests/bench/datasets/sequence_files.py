"""The rows about SequenceFiles: read, sorted, written and synced by us, against what no program can do without.

The yardstick is physical: ISA-L inflates the blocks of the same files, and their bytes are copied once.  A build needs
the first, and has to keep every record until it has seen the last one.  The copy goes into memory that the process
has not touched before, as that of a build; beside it stands the same into memory that it has.  Both run in a warm
process, and nothing is written.  Ours is charged the processor time of all processes that a build starts, from the
start of the interpreter, and so are the others that sort (`sorters`); what a build of one record takes stands in a row
of its own.
"""

from __future__ import annotations

import compileall
import gzip
import mmap
import random
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING

from isal import isal_zlib

import gossipkv
from tests.bench import data, goals, machine
from tests.bench.building import remove
from tests.bench.datasets import build_process, records, sorters
from tests.bench.measurement import Measurement
from tests.oracle import sequence_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

FILES = 4
MICROSECONDS = 1e6
MILLISECONDS = 1e3
OURS = "GossipKV"

# A consonant and a vowel, spelled as in the CMU Pronouncing Dictionary.
CONSONANTS = b"B D F G K L M N P R S T V W Y Z".split()
VOWELS = {b"a": b"AE1", b"e": b"EH0", b"i": b"IH2", b"o": b"OW1", b"u": b"UW0"}
SYLLABLES = [(c.lower() + letter, c + b" " + sound) for c in CONSONANTS for letter, sound in VOWELS.items()]
SYLLABLES_IN_WORD = 4


@dataclass(frozen=True)
class Load:
    """How many records, how often."""

    short: int = 2_000_000  # of 31 bytes
    long: int = 1_000_000  # of 116 bytes
    rounds: int = 5


def words(count: int) -> list[Record]:
    """Words and how they sound, 8 and 23 bytes, in random order."""
    base = len(SYLLABLES)
    found = []
    for number in random.Random(data.SEED).sample(range(base**SYLLABLES_IN_WORD), count):
        rest, spoken = number, []
        for _ in range(SYLLABLES_IN_WORD):
            rest, which = divmod(rest, base)
            spoken.append(SYLLABLES[which])
        found.append((b"".join(letters for letters, _ in spoken), b" ".join(sound for _, sound in spoken)))
    return found


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Rows for short records and for long ones, in random order and in that of their keys."""
    compileall.compile_dir(gossipkv.__path__[0], quiet=1)  # As pip leaves it: no build is to compile the package.
    short, long = words(load.short), data.make(load.long, data.SMALL_VALUE_BYTES).records
    for row, truth in (
        (goals.SEQUENCE_SHORT, short),
        (goals.SEQUENCE_LONG, long),
        (goals.SEQUENCE_SHORT_SORTED, sorted(short)),
        (goals.SEQUENCE_LONG_SORTED, sorted(long)),
    ):
        machine.say(f"  {row}")
        yield from _Row(row, directory / row, truth, notes).measure(load.rounds)


class _Row:
    """One kind of records."""

    def __init__(self, row: str, directory: Path, truth: list[Record], notes: list[str]) -> None:
        self._row, self._directory, self._truth = row, directory, truth
        self._paths = records.write_sequence_files(directory / "source" / "words" / "1", truth, FILES)
        records.write_sequence_files(directory / "one" / "words" / "1", truth[:1], 1)
        self._packed = [each for path in self._paths for each in _compressed(path.read_bytes())]
        self._sizes = [len(isal_zlib.decompress(each)) for each in self._packed]
        notes.append(
            f"{row}: {len(truth):,} records in {FILES} files, {sum(map(len, self._packed)):,} bytes in "
            f"{len(self._packed):,} zlib streams, {sum(self._sizes):,} inflated"
        )

    def measure(self, rounds: int) -> Iterator[Measurement]:
        """The row, and beside the first one that of the start."""
        self._check()
        touched = memoryview(bytearray(sum(self._sizes)))
        ways: dict[str, Callable[[], float]] = {
            OURS: lambda: self._build("source"),
            goals.INFLATE_AND_PASS: lambda: self._inflate(None),
            goals.INFLATE_AND_PASS_AGAIN: lambda: self._inflate(touched),
        }
        if self._row in {goals.SEQUENCE_SHORT, goals.SEQUENCE_LONG}:
            lines = self._write_lines()
            for name in sorters.installed():
                ways[name] = lambda name=name: self._sort(name, lines)
        samples: dict[str, list[float]] = {name: [] for name in ways}
        starts: list[float] = []
        rng = random.Random(f"{data.SEED} {self._row}")
        for number in range(rounds + 1):
            start_ms = self._build("one") * MILLISECONDS
            for name in rng.sample(sorted(ways), len(ways)):
                taken_s = ways[name]()
                if number > 0:
                    samples[name].append(taken_s * MICROSECONDS / len(self._truth))
            if number > 0:
                starts.append(start_ms)
        yield Measurement(self._row, "us", OURS, samples)
        if self._row == goals.SEQUENCE_SHORT:
            yield Measurement(goals.SEQUENCE_START, "ms", OURS, {OURS: starts})
        remove(self._directory)

    def _check(self) -> None:
        """Once, what is built is right, and so is what the oracle reads of the same files."""
        if {each for path in self._paths for each in sequence_file.read(path.read_bytes())} != set(self._truth):
            raise RuntimeError("the oracle does not read what it wrote")
        self._build("source", check=True)

    def _build(self, source: str, *, check: bool = False) -> float:
        target = self._directory / "built"
        cost = build_process.run(build_process.job_of(self._directory / source, "words", target))
        if check:
            records.check_all(target, self._truth)
        remove(target)
        return cost.cpu_s

    def _inflate(self, room: memoryview | None) -> float:
        begin = process_time()
        if room is None:
            room = memoryview(mmap.mmap(-1, sum(self._sizes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        at = 0
        for packed, size in zip(self._packed, self._sizes, strict=True):
            room[at : at + size] = isal_zlib.decompress(packed, bufsize=size)
            at += size
        return process_time() - begin

    def _write_lines(self) -> Path:
        """The same files as gzipped lines."""
        directory = self._directory / "lines"
        directory.mkdir()
        for path in self._paths:
            with gzip.open(directory / f"{path.name}.gz", "wb", compresslevel=6) as file:
                file.writelines(b"%b\t%b\n" % each for each in sequence_file.read(path.read_bytes()))
        return directory

    def _sort(self, name: str, lines: Path) -> float:
        target = self._directory / "sorted"
        taken = sorters.run(name, lines, target)
        remove(target)
        return taken


def _compressed(content: bytes) -> Iterator[bytes]:
    """The streams of a file's blocks."""
    cursor = sequence_file.Cursor(content, sequence_file.read_header(content).end)
    while cursor.at < len(content):
        cursor.integer()
        cursor.take(sequence_file.SYNC_BYTES)
        cursor.vint()
        for _ in range(4):
            yield cursor.take(cursor.vint())
